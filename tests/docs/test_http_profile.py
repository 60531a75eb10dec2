"""The published contract names every field, word, path and error of the code, and no error that is none."""

import re
from pathlib import Path

import pytest

from bridge.errors import BridgeError
from bridge.http.operations import OPERATIONS
from bridge.http.schemas import leaves
from bridge.message import FIELDS, Field
from bridge.wire.headers import PARAMETERS

PROFILE = (Path(__file__).parents[2] / "docs" / "http-profile.md").read_text("utf-8")
ERRORS = leaves(BridgeError)


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.code)
def test_an_error_has_its_row_with_its_status(cls: type[BridgeError]) -> None:
    assert re.search(rf"^\| `{cls.code}` \| {cls.status} \|", PROFILE, re.MULTILINE)


def test_no_row_names_an_error_that_is_none() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| [45]\d\d \|", PROFILE, re.MULTILINE)
    assert sorted(listed) == sorted(cls.code for cls in ERRORS)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field_has_its_row(field: Field) -> None:
    assert f"| `x-oms-h-{field.name.lower()}` |" in PROFILE


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_word_of_the_vocabulary_is_explained(name: str) -> None:
    assert f"`x-oms-{name}`" in PROFILE


@pytest.mark.parametrize(("method", "path"), [(m, path) for path, methods in OPERATIONS.items() for m in methods])
def test_an_operation_is_named(method: str, path: str) -> None:
    assert f"`{method} {path}`" in PROFILE
