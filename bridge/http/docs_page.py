"""The OpenAPI document as one page of HTML: no script, no request, nothing but what stands in it."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

CONTENT_SECURITY: Final = b"default-src 'none'; style-src 'unsafe-inline'"

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:3rem;border-bottom:1px solid #8886}h3{font-size:1rem}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #8883}
"""


def render(document: Mapping[str, Any]) -> str:
    """Write the page."""
    info = document["info"]
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = f"{info['title']} {info['version']}"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{escape(info['description'])}</p>",
        "<ul>",
        *(f'<li><a href="#{o["operationId"]}">{_code(label)}</a> {escape(o["summary"])}' for label, o in operations),
        '<li><a href="#fields">Message in JSON</a><li><a href="#problems">Problems</a></ul>',
        *(_operation(label, operation, document) for label, operation in operations),
        _message(document["components"]["schemas"]["Message"]),
        _problems(document["components"]["schemas"]["Problem"]),
    ]
    return "\n".join(parts) + "</html>\n"


def _operation(label: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    parts = [
        f'<h2 id="{operation["operationId"]}">{_code(label)}</h2>',
        f"<p><strong>{escape(operation['summary'])}.</strong> {escape(operation['description'])}</p>",
    ]
    if asked := operation["parameters"]:
        rows = [[_code(p["name"]), p["in"], _values(p["schema"]), _meaning(p)] for p in asked]
        parts.append("<h3>Request</h3>" + _table(("name", "in", "values", "meaning"), rows))
    if body := operation.get("requestBody"):
        media = ", ".join(map(_code, body["content"]))
        parts.append(f"<p>Body: {media}. {escape(body['description'])}</p>")
    rows = [
        [_code(status), _headers(answer, document), escape(answer["description"]) + _codes(answer)]
        for status, answer in operation["responses"].items()
    ]
    parts.append("<h3>Answers</h3>" + _table(("status", "headers", "meaning"), rows))
    return "\n".join(parts)


def _message(schema: Mapping[str, Any]) -> str:
    rows = []
    for name, member in schema["properties"].items():
        inner = member.get("properties")
        if inner is None:
            rows.append([_code(name), _values(member), escape(member["description"])])
            continue
        rows += [[_code(f"{name}.{field}"), _values(s), escape(s["description"])] for field, s in inner.items()]
    return '<h2 id="fields">Message in JSON</h2>' + _table(("member", "values", "meaning"), rows)


def _problems(schema: Mapping[str, Any]) -> str:
    members = [[_code(name), escape(s.get("description", ""))] for name, s in schema["properties"].items()]
    codes = [[_code(code["const"]), escape(code["description"])] for code in schema["properties"]["code"]["oneOf"]]
    tables = _table(("member", "meaning"), members) + "<h3>Codes</h3>" + _table(("code", "meaning"), codes)
    return f'<h2 id="problems">Problems</h2>{tables}'


def _headers(answer: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    known = document["components"]["headers"]
    return "<br>".join(
        f'<span title="{escape(known[name].get("description", ""))}">{_code(name)}</span>'
        for name in answer.get("headers", ())
    )


def _codes(answer: Mapping[str, Any]) -> str:
    codes = [code for media in answer.get("content", {}).values() for code in media.get("examples", ())]
    return f"<br>{', '.join(map(_code, codes))}" if codes else ""


def _meaning(parameter: Mapping[str, Any]) -> str:
    required = " <strong>Required.</strong>" if parameter.get("required") else ""
    example = f" Example: {_code(parameter['example'])}" if "example" in parameter else ""
    return escape(parameter["description"]) + required + example


def _values(schema: Mapping[str, Any]) -> str:
    """Write what a value may be, in a word or two."""
    if "enum" in schema:
        return ", ".join(map(_code, schema["enum"]))
    if schema["type"] == "array":
        return f"list of {_values(schema['items'])}"
    if "maximum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}"
    return _code(schema["pattern"]) if "pattern" in schema else escape(str(schema["type"]))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["<table><tr>", *(f"<th>{name}" for name in head)]
    for row in rows:
        lines += ["<tr>", *(f"<td>{cell}" for cell in row)]
    return "".join(lines) + "</table>"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"
