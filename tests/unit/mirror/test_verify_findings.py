"""What the observations mean: every kind of finding, its weight, and the exit status."""

import json

import pytest

from bridge.mirror.commands.inspect import SHOWN, findings_as_json, findings_as_text
from bridge.mirror.offsets import Gap
from bridge.mirror.verify import (
    WEIGHTS,
    FileObservation,
    Ledger,
    LedgerEntry,
    Observations,
    Span,
    evaluate,
    status,
)

A = FileObservation("messages/date=2025-11-21/x.parquet", 5, 100, 100, 5)
SOUND = Observations(files=[A], covered={"a/0": (0, 5)}, before={"a/0": 5}, bounds={"a/0": (0, 5)})
FAULTS: dict[str, Observations] = {
    "missing-file": SOUND._replace(files=[A._replace(size=None, read=None)]),
    "changed-file": SOUND._replace(files=[A._replace(read=6)]),
    "doubled": SOUND._replace(doubled={"a/0": Span(2, 3, 4)}),
    "uncovered": SOUND._replace(uncovered={"a/0": Span(1, 9, 9)}),
    "gap": SOUND._replace(gaps=(Gap("a/0", 2, 4), Gap("b", 7, None))),
    "lost": SOUND._replace(bounds={"a/0": (7, 9)}),
    "restarted": SOUND._replace(bounds={"a/0": (0, 3)}),
    "gone": SOUND._replace(bounds={}),
    "behind": SOUND._replace(bounds={"a/0": (0, 8)}),
    "ledger-missing": SOUND._replace(ledger=Ledger(3, 1, 0, [LedgerEntry("m", None, 1, 0)])),
    "ledger-doubled": SOUND._replace(ledger=Ledger(3, 0, 1, [LedgerEntry("m", "a", 1, 2)])),
}


def test_every_kind_is_tried_here() -> None:
    assert FAULTS.keys() | {"ledger-behind"} == WEIGHTS.keys()


def test_a_sound_mirror_has_no_findings() -> None:
    assert evaluate(SOUND) == []
    assert status([]) == 0


def test_each_fault_is_found_and_nothing_else(subtests: pytest.Subtests) -> None:
    for kind, observations in FAULTS.items():
        with subtests.test(kind=kind, observations=observations):
            found = evaluate(observations)
            assert {finding.kind for finding in found} == {kind}
            assert status(found) == {"fault": 1, "behind": 3, "note": 0}[WEIGHTS[kind]]


def test_what_is_not_mirrored_yet_is_not_missing() -> None:
    missing = [LedgerEntry(f"m{n}", None, 1, 0) for n in range(3)]
    behind = SOUND._replace(bounds={"a/0": (0, 8)}, ledger=Ledger(9, 3, 0, missing))
    found = evaluate(behind)
    assert [finding.kind for finding in found] == ["behind", *["ledger-behind"] * 3]
    assert status(found) == 3
    more = behind._replace(ledger=Ledger(9, 4, 0, missing))
    assert status(evaluate(more)) == 1, "one more than what can still come"


def test_numbers_and_offsets_are_named() -> None:
    assert [(f.subject, f.number, f.says) for f in evaluate(FAULTS["behind"])] == [
        ("a/0", 3, "has 3 offsets that are not mirrored yet")
    ]
    assert [(f.subject, f.says) for f in evaluate(FAULTS["lost"])] == [
        ("a/0", "has dropped the offsets from 5 to 6; they can no longer be mirrored")
    ]
    assert [(f.number, f.says) for f in evaluate(FAULTS["gap"])] == [
        (2, "lost its offsets from 2 to 3 before the mirror read them"),
        (0, "lost its offsets from 7 on before the mirror read them"),
    ]
    assert [(f.subject, f.says) for f in evaluate(FAULTS["ledger-doubled"])] == [
        ("m", "of a was confirmed once and is here twice")
    ]


def test_a_log_that_was_never_mirrored_is_behind_by_what_is_kept_of_it() -> None:
    found = evaluate(SOUND._replace(bounds={"a/0": (0, 5), "new/0": (10, 14), "empty/0": (3, 3)}))
    assert [(f.kind, f.subject, f.number) for f in found] == [("behind", "new/0", 4)]


def test_what_the_job_did_meanwhile_is_no_fault() -> None:
    assert evaluate(SOUND._replace(before={"a/0": 5}, covered={"a/0": (0, 9)}, bounds={"a/0": (0, 7)})) == []


def test_a_file_of_which_nothing_can_be_read_is_changed() -> None:
    assert [(f.kind, f.number) for f in evaluate(SOUND._replace(files=[A._replace(read=None)]))] == [
        ("changed-file", 5)
    ]


def test_what_is_dropped_up_to_where_the_mirror_is_is_not_lost() -> None:
    assert [f.kind for f in evaluate(SOUND._replace(bounds={"a/0": (5, 8)}))] == ["behind"]


def test_a_file_of_another_size_is_changed_though_its_rows_are_as_many() -> None:
    assert [f.kind for f in evaluate(SOUND._replace(files=[A._replace(size=99)]))] == ["changed-file"]


def test_what_weighs_most_comes_first_and_decides() -> None:
    found = evaluate(SOUND._replace(bounds={"a/0": (0, 8)}, doubled={"a/0": Span(2, 3, 4)}, gaps=(Gap("a/0", 2, 4),)))
    assert [f.weight for f in found] == ["fault", "behind", "note"]
    assert status(found) == 1


def test_a_person_is_shown_the_first_of_each_kind_and_how_many_more_there_are() -> None:
    observations = SOUND._replace(
        files=[FileObservation(f"messages/{n:03}", 1, 1, None, None) for n in range(30)],
        ledger=Ledger(500, 400, 0, [LedgerEntry(f"id {n}", None, 1, 0) for n in range(SHOWN)]),
    )
    text = findings_as_text(observations, evaluate(observations))
    assert "and 10 more" in text
    assert "and 380 more" in text
    assert "messages/019" in text
    assert "messages/020" not in text
    assert "ledger: 500 confirmed, 400 missing, 0 duplicated" in text
    assert text.endswith("errors found")


def test_json_holds_all_of_it() -> None:
    observations = FAULTS["behind"]
    assert json.loads(findings_as_json(observations, evaluate(observations))) == {
        "status": 3,
        "rows": 5,
        "files": 1,
        "logs": 1,
        "ledger": None,
        "findings": [
            {
                "weight": "behind",
                "kind": "behind",
                "subject": "a/0",
                "number": 3,
                "says": "has 3 offsets that are not mirrored yet",
            }
        ],
    }


def test_what_others_wrote_cannot_reach_into_the_terminal() -> None:
    observations = SOUND._replace(doubled={"a\x1b[2J/0": Span(1, 0, 0)})
    assert "\x1b" not in findings_as_text(observations, evaluate(observations))
