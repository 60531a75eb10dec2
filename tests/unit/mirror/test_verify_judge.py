"""What the facts mean: every kind of finding, its weight, and the exit status."""

import json

import pytest

from adapters.runs import Runs
from bridge.mirror.manifest import File, Gap
from bridge.mirror.verify import show
from bridge.mirror.verify.judge import WEIGHTS, Facts, Kind, Ledger, Span, Told, judge, status

A = "data/destination=a/date=2025-11-21/hour=12/x.parquet"
SOUND = Facts(
    expected={A: File(A, 5, 100)},
    known={A},
    listed={A: 100},
    staged=frozenset(),
    read={A: 5},
    doubled={},
    uncovered={},
    skipped={},
    covered={},
    gaps=(),
    before={"a/0": 5},
    after={"a/0": 5},
    bounds={"a/0": (0, 5)},
)


def runs(*bounds: tuple[int, int]) -> Runs:
    made = Runs()
    for start, stop in bounds:
        made.add_run(start, stop)
    return made


FAULTS: dict[Kind, Facts] = {
    "missing-file": SOUND._replace(listed={}, read={}),
    "unpublished-file": SOUND._replace(listed={}, read={}, staged=frozenset({A})),
    "changed-file": SOUND._replace(read={A: 6}),
    "unknown-file": SOUND._replace(listed={A: 100, "data/b.parquet": 9}),
    "missing-manifest": SOUND._replace(skipped={"q": [3, 4]}),
    "doubled": SOUND._replace(doubled={"a/0": Span(2, 3, 4)}),
    "uncovered": SOUND._replace(uncovered={"a/0": Span(1, 9, 9)}),
    "hole": SOUND._replace(covered={"a/0": runs((0, 2), (4, 5))}),
    "gap": SOUND._replace(gaps=(Gap("a/0", 2, 4), Gap("b", 7, None))),
    "lost": SOUND._replace(bounds={"a/0": (7, 9)}),
    "restarted": SOUND._replace(bounds={"a/0": (0, 3)}),
    "gone": SOUND._replace(bounds={}),
    "behind": SOUND._replace(bounds={"a/0": (0, 8)}),
    "ledger-missing": SOUND._replace(ledger=Ledger(3, 1, 0, [Told("m", None, 1, 0)])),
    "ledger-doubled": SOUND._replace(ledger=Ledger(3, 0, 1, [Told("m", "a", 1, 2)])),
}


def test_every_kind_is_tried_here() -> None:
    assert FAULTS.keys() == WEIGHTS.keys()


def test_a_sound_mirror_has_no_findings() -> None:
    assert judge(SOUND) == []
    assert status([]) == 0


@pytest.mark.parametrize(("kind", "facts"), FAULTS.items(), ids=FAULTS)
def test_each_fault_is_found_and_nothing_else(kind: Kind, facts: Facts) -> None:
    found = judge(facts)
    assert {finding.kind for finding in found} == {kind}
    assert status(found) == {"fault": 1, "behind": 3, "note": 0}[WEIGHTS[kind]]


def test_numbers_and_offsets_are_named() -> None:
    assert [(f.subject, f.number, f.says) for f in judge(FAULTS["hole"])] == [
        ("a/0", 2, "was never mirrored from offset 2 to 3")
    ]
    assert [(f.subject, f.number, f.says) for f in judge(FAULTS["behind"])] == [
        ("a/0", 3, "has 3 offsets that are not mirrored yet")
    ]
    assert [(f.subject, f.says) for f in judge(FAULTS["lost"])] == [
        ("a/0", "has dropped the offsets from 5 to 6; they can no longer be mirrored")
    ]
    assert [(f.number, f.says) for f in judge(FAULTS["gap"])] == [
        (2, "had lost its offsets from 2 to 3 before the mirror came to them"),
        (0, "had lost its offsets from 7 on before the mirror came to them"),
    ]
    assert [(f.subject, f.says) for f in judge(FAULTS["ledger-doubled"])] == [
        ("m", "of a was confirmed once and is here twice")
    ]


def test_a_log_that_was_never_mirrored_is_behind_by_what_is_kept_of_it() -> None:
    found = judge(SOUND._replace(bounds={"a/0": (0, 5), "new/0": (10, 14), "empty/0": (3, 3)}))
    assert [(f.kind, f.subject, f.number) for f in found] == [("behind", "new/0", 4)]


def test_what_the_job_did_meanwhile_is_no_fault() -> None:
    published = SOUND._replace(known={A, "data/new.parquet"}, listed={A: 100, "data/new.parquet": 7})
    assert judge(published) == []
    moved_on = SOUND._replace(before={"a/0": 5}, after={"a/0": 9}, bounds={"a/0": (0, 7)})
    assert judge(moved_on) == []


def test_a_file_of_which_nothing_can_be_read_is_changed() -> None:
    assert [(f.kind, f.number) for f in judge(SOUND._replace(read={}))] == [("changed-file", 5)]


def test_what_is_dropped_up_to_where_the_mirror_is_is_not_lost() -> None:
    assert [f.kind for f in judge(SOUND._replace(bounds={"a/0": (5, 8)}))] == ["behind"]


def test_a_file_of_another_size_is_changed_though_its_rows_are_as_many() -> None:
    assert [f.kind for f in judge(SOUND._replace(listed={A: 99}))] == ["changed-file"]


def test_what_weighs_most_comes_first_and_decides() -> None:
    found = judge(SOUND._replace(bounds={"a/0": (0, 8)}, doubled={"a/0": Span(2, 3, 4)}, gaps=(Gap("a/0", 2, 4),)))
    assert [f.weight for f in found] == ["fault", "behind", "note"]
    assert status(found) == 1


def test_a_person_is_shown_the_first_of_each_kind_and_how_many_more_there_are() -> None:
    facts = SOUND._replace(
        expected={f"data/{n:03}": File(f"data/{n:03}", 1, 1) for n in range(30)},
        ledger=Ledger(500, 400, 0, [Told(f"id {n}", None, 1, 0) for n in range(show.SHOWN)]),
        known={A} | {f"data/{n:03}" for n in range(30)},
    )
    text = show.as_text(facts, judge(facts), asked_ledger=True)
    assert "and 10 more" in text
    assert "and 380 more" in text
    assert "data/019" in text
    assert "data/020" not in text
    assert "ledger: 500 confirmed, 400 missing, 0 too often" in text
    assert text.endswith("something is wrong")


def test_json_holds_all_of_it() -> None:
    facts = FAULTS["hole"]
    assert json.loads(show.as_json(facts, judge(facts), asked_ledger=False)) == {
        "status": 1,
        "rows": 5,
        "files": 1,
        "logs": 1,
        "ledger": None,
        "findings": [
            {
                "weight": "fault",
                "kind": "hole",
                "subject": "a/0",
                "number": 2,
                "says": "was never mirrored from offset 2 to 3",
            }
        ],
    }


def test_what_others_wrote_cannot_reach_into_the_terminal() -> None:
    facts = SOUND._replace(doubled={"a\x1b[2J/0": Span(1, 0, 0)})
    assert "\x1b" not in show.as_text(facts, judge(facts), asked_ledger=False)
