"""The OpenAPI document as HTML: one page without scripts, which loads nothing else."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from bridge.http.openapi import document as openapi
from bridge.message import LONG_MAX

_FIELDS_SHOWN: Final = 5
"""Fields that are listed one by one among the headers of a response."""

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:3rem;border-bottom:1px solid #8886}
h3{font-size:1rem;margin:1.5rem 0 .3rem}
code,pre{font-family:ui-monospace,monospace;font-size:.88em}
code{white-space:nowrap}
pre{background:#8881;padding:.8rem;border-radius:4px;white-space:pre-wrap;overflow-wrap:anywhere}
.samples p{margin:.8rem 0 -.4rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem 1rem .3rem 0;border-bottom:1px solid #8883}
@media(max-width:46rem){
pre{font-size:.74em}
li code,h2 code,p code{white-space:normal}
tr:first-child{display:none}
tr{display:block;padding:.4rem 0;border-bottom:1px solid #8883}
td{display:block;padding:0;border:0}
td:first-child{font-weight:bold}
}
"""


def render(document: Mapping[str, Any]) -> str:
    """Return an OpenAPI document of this bridge as HTML."""
    info, components = document["info"], document["components"]
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    contents = [(operation["operationId"], _code(label), operation["summary"]) for label, operation in operations]
    contents += [
        ("headers", "Response headers", ""),
        ("fields", "Message in JSON", ""),
        ("problems", "Problem documents", "and all error codes"),
    ]
    title = f"{info['title']} {info['version']}"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>{_paragraphs(info['description'])}",
        "<ul>",
        *(f'<li><a href="#{target}">{label}</a> {escape(summary)}' for target, label, summary in contents),
        "</ul>",
        *(_operation(label, operation, components["examples"]) for label, operation in operations),
        _response_headers(components["headers"], [operation for _, operation in operations]),
        _message(components["schemas"]["Message"]),
        _problems(components["schemas"]["Problem"]),
    ]
    return "\n".join(parts) + "</html>\n"


def _operation(label: str, operation: Mapping[str, Any], problems: Mapping[str, Any]) -> str:
    parts = [
        f'<h2 id="{operation["operationId"]}">{_code(label)}</h2>',
        f"<p><strong>{escape(operation['summary'])}</strong></p>{_paragraphs(operation['description'])}",
    ]
    if samples := operation.get("x-codeSamples"):
        shown = (f"<p>{_text(sample['label'])}:</p><pre>{escape(sample['source'])}</pre>" for sample in samples)
        parts.append(f'<div class="samples">{"".join(shown)}</div>')
    in_path, headers, query = (
        [parameter for parameter in operation["parameters"] if parameter["in"] == place]
        for place in ("path", "header", "query")
    )
    if in_path:
        parts.append("<h3>Path</h3>" + _parameters("part", in_path))
        parts.append("<h3>Query parameters</h3>" + _parameters("parameter", query))
    if headers:
        parts.append("<h3>Request headers</h3>")
        if query and not in_path:
            parts.append("<p>Each <code>x-oms-</code> header may be a query parameter without this prefix instead.</p>")
        parts.append(_parameters("header", headers))
    if body := operation.get("requestBody"):
        media = ", ".join(map(_code, body["content"]))
        parts.append(f"<h3>Request body</h3><p>{_text(body['description'])} {media}.</p>")
    rows = [
        [_code(status), _response(response, problems), _names(response.get("headers", ()))]
        for status, response in operation["responses"].items()
    ]
    parts.append("<h3>Responses</h3>" + _table(("status", "meaning", "headers"), rows))
    return "\n".join(parts)


def _parameters(kind: str, parameters: Iterable[Mapping[str, Any]]) -> str:
    rows = [[_code(each["name"]), _values(each["schema"]), _meaning(each)] for each in parameters]
    return _table((kind, "values", "meaning"), rows)


def _response_headers(headers: Mapping[str, Any], operations: Iterable[Mapping[str, Any]]) -> str:
    described = {parameter["name"] for operation in operations for parameter in operation["parameters"]}
    rows = [
        [_code(name), _values(header["schema"]), _text(header["description"])]
        for name, header in headers.items()
        if not (name.startswith("x-oms-h-") and name in described)
    ]
    about = "<p>The other headers of fields, <code>x-oms-h-</code>, mean the same as in a request.</p>"
    return '<h2 id="headers">Response headers</h2>' + about + _table(("header", "values", "meaning"), rows)


def _message(schema: Mapping[str, Any]) -> str:
    rows = []
    for name, member in schema["properties"].items():
        inner = member.get("properties")
        if inner is None:
            rows.append([_code(name), _values(member), _text(member["description"])])
            continue
        rows += [[_code(f"{name}.{field}"), _values(s), _text(s["description"])] for field, s in inner.items()]
    example = f"<pre>{escape(json.dumps(openapi.MESSAGE, indent=2))}</pre>"
    return '<h2 id="fields">Message in JSON</h2>' + example + _table(("member", "values", "meaning"), rows)


def _problems(schema: Mapping[str, Any]) -> str:
    members = [[_code(name), _text(s["description"])] for name, s in schema["properties"].items()]
    codes = [[_code(code["const"]), _text(code["description"])] for code in schema["properties"]["code"]["oneOf"]]
    tables = _table(("member", "meaning"), members) + "<h3>Codes</h3>" + _table(("code", "meaning"), codes)
    return f'<h2 id="problems">Problem documents</h2>{tables}'


def _names(names: Sequence[str]) -> str:
    """List header names; the fields of a message, which are many, as one."""
    fields = [name for name in names if name.startswith("x-oms-h-")]
    shown = [name for name in names if name not in fields] if len(fields) > _FIELDS_SHOWN else names
    all_fields = ["<code>x-oms-h-</code> all fields"] if shown is not names else []
    return "<br>".join([*map(_code, shown), *all_fields]) or "none"


def _response(response: Mapping[str, Any], problems: Mapping[str, Any]) -> str:
    """Write what a response means: that of an error, code by code."""
    codes = [code for content in response.get("content", {}).values() for code in content.get("examples", ())]
    lines = [f"{_code(code)} {_text(problems[code]['value']['detail'])}" for code in codes]
    return "<br>".join(lines or [_text(response["description"])])


def _meaning(parameter: Mapping[str, Any]) -> str:
    required = " <strong>Required.</strong>" if parameter.get("required") else ""
    example = f" Example: {_code(parameter['example'])}" if "example" in parameter else ""
    return _text(parameter["description"]) + required + example


def _values(schema: Mapping[str, Any]) -> str:
    """Write briefly which values a schema allows."""
    if "title" in schema:
        return escape(schema["title"])
    if "enum" in schema:
        return ", ".join(map(_code, schema["enum"]))
    if schema["type"] == "array":
        return f"list of {_values(schema['items'])}"
    if "maximum" in schema:
        minimum, maximum = schema["minimum"], schema["maximum"]
        return f"{minimum} or more" if maximum == LONG_MAX else f"{minimum} to {maximum}"
    return {"string": "text", "boolean": "true or false"}.get(schema["type"], escape(str(schema["type"])))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["<table><tr>", *(f"<th>{name}" for name in head)]
    for row in rows:
        lines += ["<tr>", *(f"<td>{cell}" for cell in row)]
    return "".join(lines) + "</table>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_text(paragraph)}</p>" for paragraph in text.split("\n\n"))


def _text(text: str) -> str:
    """Escape a text; backticks become code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"
