"""The part of the charts' schemas that says what `settings` may hold, made from the bridge's own model.

`python -m tests.helm.settings_schema` writes it into both; a test fails until that was done.
"""

import json
from pathlib import Path
from typing import Any, Final

from bridge.settings import Settings, leaves

CHART: Final = Path(__file__).parents[2] / "helm" / "openmessaging-bridge"
SCHEMAS: Final = tuple(chart / "values.schema.json" for chart in (CHART, CHART / "charts" / "openmessaging-bridge-lib"))
ELSEWHERE: Final = {"backend", "backend_file", "listen", "management", "tls"}
"""What the charts say by values of their own: ports, and what is or may hold a secret."""
_SECRETS: Final = {"secrets", "secrets_file"}
_BYTES: Final = {"type": ["integer", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?\s*([KMG]i?B)?$"}
_IN_BYTES: Final = {leaf.path for leaf in leaves() if leaf.allowed.startswith("a number of bytes")}

Schema = dict[str, Any]
"""As pydantic writes it."""


def settings_schema() -> Schema:
    """Return it: every setting that the charts do not say otherwise, with its range and its line of documentation."""
    whole = Settings.model_json_schema()
    properties = {
        name: _section(name, field, whole["$defs"])
        for name, field in whole["properties"].items()
        if name not in ELSEWHERE
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _section(name: str, field: Schema, sections: dict[str, Schema]) -> Schema:
    if "$ref" not in field:
        return _leaf((name,), field)
    section = sections[field["$ref"].rpartition("/")[2]]
    known = {leaf: _leaf((name, leaf), its) for leaf, its in section["properties"].items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {leaf: its for leaf, its in known.items() if leaf not in _SECRETS},
    }


def _leaf(path: tuple[str, ...], field: Schema) -> Schema:
    if path in _IN_BYTES:
        return {"description": field["description"], **_BYTES}
    values = next((each for each in field.get("anyOf", ()) if each["type"] != "null"), field)
    kept = {key: value for key, value in values.items() if key in {"type", "minimum", "maximum", "enum", "items"}}
    return {"description": field["description"], **kept}


def main() -> None:
    """Write it into both charts."""
    for path in SCHEMAS:
        schema = json.loads(path.read_text("utf-8"))
        schema["$defs"]["settings"] = settings_schema()
        path.write_text(json.dumps(schema, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
