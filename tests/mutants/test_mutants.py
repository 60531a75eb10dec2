"""The tool itself, without mutmut: which mutants count, which are drawn, and what is reported."""

import json
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, Accepted, concerning, draw, files_of, report
from tests.mutants.read import Mutant, mutants_of
from tests.mutants.table import LEFT_OUT, TABLE

SOURCE = '''\
"""A module."""

LIMIT = 5


class Box:
    """Holds."""

    def put(self, size):
        """Put."""
        if size > LIMIT:
            raise ValueError(f"at most {LIMIT}", size)
        _log.warning("put %s", size)
        for a, b in zip(size, size, strict=True):
            a.encode("ascii")
        return size
'''


def written(root: Path, *changed: tuple[str, str]) -> list[Mutant]:
    """Lay out a module and its mutants as mutmut does, and read them."""
    start = SOURCE.index("    def put")
    method = SOURCE[start:]
    functions = [method.replace("def put", "def xǁBoxǁput__mutmut_orig")]
    for number, (was, becomes) in enumerate(changed, 1):
        assert was in method
        functions.append(method.replace(was, becomes).replace("def put", f"def xǁBoxǁput__mutmut_{number}"))
    (root / "mutants").mkdir()
    (root / "box.py").write_text(SOURCE)
    (root / "mutants" / "box.py").write_text(SOURCE + "\n" + "\n".join(functions))
    names = {f"box.xǁBoxǁput__mutmut_{number}": None for number in range(1, len(changed) + 1)}
    (root / "mutants" / "box.py.meta").write_text(json.dumps({"exit_code_by_key": names}))
    return list(mutants_of("box.py", root))


def test_a_mutant_has_the_line_of_the_original(tmp_path: Path) -> None:
    assert written(tmp_path, ("size > LIMIT", "size >= LIMIT")) == [
        Mutant("box.xǁBoxǁput__mutmut_1", "box.py", 11, "if size > LIMIT:", "if size >= LIMIT:")
    ]


def test_a_mutant_that_changes_only_a_sentence_or_nothing_is_not_counted(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        ('f"at most {LIMIT}"', "None"),
        ('"put %s", size', '"XXput %sXX", size'),
        ("size > LIMIT", "(size > LIMIT)"),
        ('{LIMIT}", size)', '{LIMIT}", None)'),
        ('"ascii"', '"ASCII"'),
        ("strict=True", "strict=False"),
        ("return size", "return None"),
    )
    assert [mutant.becomes for mutant in found] == ['raise ValueError(f"at most {LIMIT}", None)', "return None"]


def test_a_module_that_mutmut_found_nothing_in_has_no_mutants(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    assert list(mutants_of("empty.py", tmp_path)) == []


MUTANTS = [Mutant(f"a.b__mutmut_{number}", "bridge/wire/a.py", number, "was", "becomes") for number in range(50)]


def test_a_seed_repeats_its_sample() -> None:
    assert draw(MUTANTS, 9, 7) == draw(MUTANTS[::-1], 9, 7)
    assert draw(MUTANTS, 9, 7) != draw(MUTANTS, 9, 8)
    assert len(set(draw(MUTANTS, 9, 7))) == 9
    assert set(draw(MUTANTS, 99, 7)) == set(MUTANTS)


def test_the_report_names_survivors_and_timeouts(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = dict.fromkeys((mutant.name for mutant in MUTANTS), "killed")
    verdicts[MUTANTS[3].name], verdicts[MUTANTS[5].name] = "survived", "timeout"
    accepted = Accepted([{"file": "bridge/wire/a.py", "was": "was", "becomes": "becomes", "reason": "equivalent"}])
    assert report(MUTANTS, verdicts, accepted) == 0.98
    told = capsys.readouterr().out
    assert "survived, accepted (equivalent): bridge/wire/a.py:3" in told
    assert "killed by a timeout: bridge/wire/a.py:5" in told
    assert "49 of 50 mutants are killed: 98.0%" in told


@pytest.mark.parametrize("verdict", ["survived", "no tests", "suspicious", "segfault", "not checked"])
def test_anything_but_a_failed_test_or_a_timeout_is_no_kill(verdict: str) -> None:
    assert report(MUTANTS, dict.fromkeys((mutant.name for mutant in MUTANTS), verdict), Accepted([])) == 0


def test_the_table_holds_what_is_there() -> None:
    named = [pattern for group in TABLE for pattern in group.modules if "*" not in pattern]
    tests = [test for group in TABLE for test in group.tests]
    for path, _, test in (left_out.partition("::") for left_out in LEFT_OUT):
        assert f"def {test}" in (ROOT / path).read_text("utf-8")
    assert [name for name in (*named, *tests) if not (ROOT / name).exists()] == []
    for folder in ("bridge/wire", "bridge/engine", "bridge/callbacks"):
        assert set(files_of(folder)) == {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*.py")}
    assert concerning(["bridge/wire/header_text.py"]) == ["tests/unit/wire"]
    assert files_of("bridge/wire/header_text") == ["bridge/wire/header_text.py"]


def test_every_accepted_mutant_has_a_reason_and_a_line_that_is_still_there() -> None:
    stale = [f"{file}: {was}" for file, was, _ in Accepted.read().entries() if was not in joined_lines(ROOT / file)]
    assert stale == []


def joined_lines(path: Path) -> str:
    """Return the lines of a file without their indent, joined by spaces; nothing for a file that was moved."""
    return " ".join(map(str.strip, path.read_text("utf-8").splitlines())) if path.exists() else ""
