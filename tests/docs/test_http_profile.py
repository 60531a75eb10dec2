"""The published contract names every field, parameter, operation and error of the code, and no other error."""

from pathlib import Path

from bridge.errors import error_classes
from bridge.message import FIELDS
from bridge.wire.headers import PARAMETERS
from tests.docs.page import Page
from tests.unit.api_document import OPERATIONS

PROFILE = (Path(__file__).parents[2] / "docs" / "http-profile.md").read_text("utf-8")
ERRORS = error_classes()


def test_every_error_has_its_row_and_every_row_is_of_an_error() -> None:
    """Its code, status, meaning, and what a client or an operator does about it."""
    rows = Page("http-profile.md").table("Errors")
    assert sorted((code, status) for code, status, _, _ in rows) == sorted(
        (f"`{e.code}`", f"{e.status}") for e in ERRORS
    )
    assert all(meaning and action for _, _, meaning, action in rows)


def test_every_field_has_its_row() -> None:
    assert [field.name for field in FIELDS if f"| `x-oms-h-{field.name.lower()}` |" not in PROFILE] == []


def test_every_parameter_is_explained() -> None:
    assert [name for name in sorted(PARAMETERS) if f"`x-oms-{name}`" not in PROFILE] == []


def test_every_operation_is_named() -> None:
    operations = [f"{method.upper()} {path}" for path, method in OPERATIONS]
    assert [operation for operation in operations if f"`{operation}`" not in PROFILE] == []
