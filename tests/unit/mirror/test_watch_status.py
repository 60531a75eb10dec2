import json
import os
import re
import threading
from pathlib import Path

import pytest

from bridge.mirror.manifest import Gap
from bridge.mirror.options import Options
from bridge.mirror.watch.events import OutageBegan, Stopped, Unmirrored
from bridge.mirror.watch.status import NAMED, WORST, about, document, write
from tests.docs.page import Page
from tests.unit.mirror.watched import ABOUT, BEGIN, batch, busy, told

PAGE = Page("mirror-status.md")


def test_the_document() -> None:
    state = told([Unmirrored({"unlogged": "it is a queue"})], busy())
    assert json.loads(json.dumps(document(state, ABOUT, BEGIN + 105_000))) == {
        "state": "running",
        "reason": None,
        "backend": "kafka://user:***@broker-1.example.org:9092",
        "out": "hdfs://namenode:8020/srv/mirror",
        "version": "0.1.0",
        "pid": 77,
        "started": "2027-01-15T08:00:00.000+00:00",
        "written": "2027-01-15T08:01:45.000+00:00",
        "rows_per_second": 12345.4,
        "rows": 679_006,
        "messages": 678_975,
        "dead_letters": 30,
        "quarantined": 1,
        "bytes": 3_500_000,
        "files": 40,
        "batches": 10,
        "last_commit": {
            "time": "2027-01-15T08:01:40.000+00:00",
            "batch": 10,
            "manifest": "manifests/q/000000000010.json",
            "rows": 123_454,
            "bytes": 350_000,
            "files": 4,
            "milliseconds": {"stage": 1800, "commit": 12, "publish": 240},
            "trigger_milliseconds": 2300,
        },
        "lag": {
            "rows": 148_000,
            "logs": 9,
            "worst": [
                {"log": "a-destination-with-a-long-name-that-does-not-fit-on-small-terminals/12", "rows": 30_000},
                *({"log": f"orders/{n}", "rows": 20_000 - n * 1500} for n in range(8)),
            ],
        },
        "gap_count": 1,
        "gaps": [{"log": "orders/0", "start": 10, "end": 20}],
        "restarts": 0,
        "unmirrored_count": 1,
        "unmirrored": [{"destination": "unlogged", "reason": "it is a queue"}],
    }


def test_what_is_not_known_is_null() -> None:
    fields = document(told([]), ABOUT, BEGIN)
    assert (fields["state"], fields["last_commit"]) == ("starting", None)
    assert fields["lag"] == {"rows": None, "logs": None, "worst": []}


@pytest.mark.parametrize("event", [OutageBegan("gone", BEGIN), Stopped("gone", BEGIN)])
def test_why_it_does_not_run(event: OutageBegan | Stopped) -> None:
    assert document(told([event], busy()), ABOUT, BEGIN)["reason"] == "gone"


def test_lists_are_bounded() -> None:
    names = tuple(f"d{n}" for n in range(1000))
    lag = dict.fromkeys(names, 1)
    state = told([Unmirrored(dict.fromkeys(names, "why")), batch(1, {}, tuple(Gap(name, 0, None) for name in names))])
    fields = json.loads(json.dumps(document(state._replace(lag=lag), ABOUT, BEGIN)))
    assert (fields["unmirrored_count"], len(fields["unmirrored"])) == (1000, NAMED)
    assert (fields["gap_count"], len(fields["gaps"])) == (1000, 100)
    assert (fields["lag"]["logs"], len(fields["lag"]["worst"])) == (1000, WORST)


def test_nothing_secret_is_shown() -> None:
    shown = about(Options("kafka://user:hunter2@host:9092?password=hunter3", "s3a://key:hunter4@bucket/mirror"))
    assert "hunter" not in str(shown)
    assert (shown.out, shown.pid) == ("s3a://key:***@bucket/mirror", os.getpid())
    assert about(Options("memory://", "/srv/mirror")).out == "/srv/mirror"


def test_a_reader_never_sees_half_a_document(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    big = {"text": "x" * 500_000, "end": True}
    write(path, {})
    over = threading.Event()
    seen: list[bool] = []

    def look() -> None:
        while not over.is_set():
            seen.append("end" in json.loads(path.read_text()))

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(100):
        write(path, big)
        write(path, {})
    write(path, big)
    while not (seen and seen[-1]) and reader.is_alive():
        pass
    over.set()
    reader.join()
    assert seen[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "status.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "status.json", {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]


def test_the_page_names_every_member_and_no_other() -> None:
    fields = document(busy(), ABOUT, BEGIN)

    def named(section: str) -> list[str]:
        return re.findall(r"^\| `(\w+)` \|", PAGE.section(section), re.MULTILINE)

    assert sorted(named("The status file")) == sorted(fields)
    for section in ("last_commit", "lag"):
        inner = fields[section]
        assert isinstance(inner, dict)
        assert sorted(named(section)) == sorted(inner)
