"""The part of the charts' schemas that says what `settings` may hold, made from the bridge's own model.

`python -m tests.helm.settings_schema` writes it into both; a test fails until that was done.
"""

import json
from pathlib import Path
from typing import Any, Final

from bridge.settings import Settings, list_settings

CHART: Final = Path(__file__).parents[2] / "helm" / "openmessaging-bridge"
SCHEMAS: Final = tuple(chart / "values.schema.json" for chart in (CHART, CHART / "charts" / "openmessaging-bridge-lib"))
ELSEWHERE: Final = {"backend", "backend_file", "listen", "management", "tls"}
"""What the charts say by values of their own: ports, and what is or may hold a secret."""
_SECRETS: Final = {"secrets", "secrets_file"}
_BYTES: Final = {"type": ["integer", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?\s*([KMG]i?B)?$"}
_IN_BYTES: Final = {setting.path for setting in list_settings() if setting.allowed.startswith("a number of bytes")}

Schema = dict[str, Any]
"""As pydantic writes it."""


def settings_schema() -> Schema:
    """Return it: every setting that the charts do not say otherwise, with its range and its line of documentation."""
    whole = Settings.model_json_schema()
    properties = {
        name: _section((name,), field, whole["$defs"])
        for name, field in whole["properties"].items()
        if name not in ELSEWHERE
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _section(path: tuple[str, ...], field: Schema, sections: dict[str, Schema]) -> Schema:
    if isinstance(named := field.get("additionalProperties"), dict):
        return {"type": "object", "additionalProperties": _section((*path, "NAME"), named, sections)}
    reference = next((each["$ref"] for each in (field, *field.get("anyOf", ())) if "$ref" in each), None)
    if reference is None:
        return _leaf(path, field)
    section = sections[reference.rpartition("/")[2]]
    known = {name: _section((*path, name), its, sections) for name, its in section["properties"].items()}
    required = {"required": section["required"]} if "required" in section else {}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: its for name, its in known.items() if name not in _SECRETS},
        **required,
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
