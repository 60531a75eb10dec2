"""The URL of the memory backend: what it allows, and one sentence for the rest."""

from pathlib import Path

import pytest

from adapters.memory import connect
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.durable_adapter import DurableAdapter
from adapters.memory.options import DAY, Options, parse

SECRET = "4711-hush"  # noqa: S105 - an example: no sentence repeats it


def test_defaults() -> None:
    assert parse("memory://") == Options()
    assert Options() == (8, 1_000_000, 256 * 1024 * 1024, 7 * DAY, 1000, 1000, None)


def test_every_option() -> None:
    url = (
        "memory://?partitions=1024&max_messages=10&max_bytes=2000&retention=60000"
        "&max_destinations=3&max_groups=4&journal=/var/lib/a%20b+c"
    )
    assert parse(url) == Options(1024, 10, 2000, 60000, 3, 4, Path("/var/lib/a b+c"))


def test_ways_to_say_nothing(subtests: pytest.Subtests) -> None:
    for url in ("memory:", "memory://", "memory:///", "memory://?", "memory://?&partitions=8&"):
        with subtests.test(url=url):
            assert parse(url) == Options()


def test_a_value_may_contain_the_sign_that_ends_names() -> None:
    assert parse("memory://?journal=/a=b").journal == Path("/a=b")


def test_refused_with_a_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("memory://?colour=red", "option 1 is unknown. The options are partitions, max_messages"),
        ("memory://?=8", "option 1 is unknown"),
        ("memory://?Partitions=8", "option 1 is unknown; did you mean partitions? The options"),
        (
            f"memory://?max_groups=1&jornal={SECRET}",
            "memory://: option 2 is unknown; did you mean journal? The options",
        ),
        (f"memory://?{SECRET}", "option 1 is unknown"),
        (f"memory://?journal=/a&journal={SECRET}", "journal is given twice"),
        (f"memory://?journal={SECRET}%00", "names a directory"),
        (f"memory://?journal={SECRET}%ff", "not UTF-8"),
        (f"memory://?partitions={SECRET}", "partitions: the value must be a whole number from 1 to 1024"),
        (f"memory://user:{SECRET}@host?partitions=8", "without a host"),
        (f"memory://{SECRET}", "without a host"),
        ("memory://?partitions=8&partitions=8", "given twice"),
        ("memory://?partitions=0", "from 1 to 1024"),
        ("memory://?partitions=1025", "from 1 to 1024"),
        ("memory://?partitions=", "plain digits"),
        ("memory://?partitions=+8", "plain digits"),
        ("memory://?partitions=8.0", "plain digits"),
        ("memory://?partitions=1_0", "plain digits"),
        ("memory://?partitions=%D9%A8", "plain digits"),  # ARABIC-INDIC DIGIT EIGHT
        ("memory://?max_messages=" + "9" * 5000, "plain digits"),
        ("memory://?retention=-1", "plain digits"),
        ("memory://?journal=", "names a directory"),
        ("memory://?journal=%20", "names a directory"),
        ("memory://?journal=a%00b", "names a directory"),
        ("memory://localhost", "without a host"),
        ("memory:///var/lib?partitions=8", "without a host or a path"),
        ("kafka://?partitions=8", "memory://"),
    ]
    for url, says in cases:
        with subtests.test(url=url, says=says):
            with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is checked below
                parse(url)
            assert says in str(caught.value)
            assert SECRET not in str(caught.value)
            assert len(str(caught.value)) < 6000


def test_connect_chooses_by_the_journal(tmp_path: Path) -> None:
    volatile, durable = connect("memory://"), connect(f"memory://?journal={tmp_path}")
    assert isinstance(volatile, MemoryAdapter)
    assert not volatile.features.durable
    assert isinstance(durable, DurableAdapter)
    assert durable.features.durable
    assert not list(tmp_path.iterdir()), "nothing is touched before start"
