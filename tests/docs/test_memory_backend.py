"""The page's table of options is the one that the URL is read with."""

import re
from pathlib import Path

import pytest

from adapters.memory.options import Options, parse

PAGE = (Path(__file__).parents[2] / "docs" / "memory-backend.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (\S+)", PAGE.split("## What it honours")[0], re.MULTILINE))


def test_every_option_has_its_row() -> None:
    assert set(ROWS) == set(Options._fields)


def test_the_defaults_are_those_shown() -> None:
    defaults = {name: str(default) for name, default in Options._field_defaults.items() if name != "journal"}
    assert defaults
    assert {name: ROWS[name] for name in defaults} == defaults


def test_the_sentence_about_an_unknown_option_is_the_real_one() -> None:
    url = re.findall(r"A mistake, such as `(memory:\S+)`", PAGE)[0]
    with pytest.raises(ValueError, match="is unknown") as raised:
        parse(url)
    assert f"Error: backend: {raised.value}" in PAGE
