import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from bridge.mirror.manifest import Gap
from bridge.mirror.watch.events import OutageBegan, Progressed, Stopped, Unmirrored
from bridge.mirror.watch.picture import picture, summary
from bridge.mirror.watch.state import State
from bridge.mirror.watch.words import ASCII, UNICODE, Glyphs, age, clean, cropped, size
from tests.unit.mirror.watched import ABOUT, BEGIN, batch, busy, told

NOW = BEGIN + 105_000
EVIL = "[red]evil[/red]\x1b[31m\n\r\x07\u202e\u200b\x9b2J"


def shown(state: State, width: int, glyphs: Glyphs = UNICODE, *, colours: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        record=True,
        force_terminal=colours,
        color_system="standard" if colours else None,
    )
    console.print(picture(state, ABOUT, NOW, width, glyphs))
    return console.export_text(styles=colours)


WIDE = """\
● running · 1 min 45 s
kafka://user:***@broker-1.example.org:9092 → hdfs://namenode:8020/srv/mirror
rows             679,006  12,345/s  ▁▂▃▄▅▅▆▇██
lag              148,000  9 logs · 11 s at this speed
                  30,000  a-destination-with-a-long-name-that-does-not-fit-on-small-terminals/12
                  20,000  orders/0
                  18,500  orders/1
                  17,000  orders/2
                  15,500  orders/3
last commit    5.0 s ago  123,454 rows · 4 files · 350 kB · in 2.1 s · stage 1.8 s, commit 0.0 s, publish 0.2 s
quarantined 1 · gaps 1 · dead letters 30
gone unread: orders/0 from 10 to 19
"""

MIDDLE = """\
● running · 1 min 45 s
kafka://user:***@broker-1.example.org:9092 → hdfs://namenode:8020/srv/mirror
rows             679,006  12,345/s  ▁▂▃▄▅▅▆▇██
lag              148,000  9 logs · 11 s at this speed
                  30,000  a-destination-with-a-long-name-that…small-terminals/12
                  20,000  orders/0
                  18,500  orders/1
                  17,000  orders/2
                  15,500  orders/3
last commit    5.0 s ago  123,454 rows · 4 files · 350 kB · in 2.1 s
quarantined 1 · gaps 1 · dead letters 30
gone unread: orders/0 from 10 to 19
"""

NARROW = """\
* running, 1 min 45 s
kafka://use~g:9092 -> hdfs://name~mirror
rows             679,006  12,345/s  +*##
lag              148,000  9 logs
                  30,000  a-destina~s/12
                  20,000  orders/0
                  18,500  orders/1
                  17,000  orders/2
                  15,500  orders/3
last commit    5.0 s ago  123,454 rows
quarantined 1, gaps 1, dead letters 30
gone unread: orders/0 from 10 to 19
"""


@pytest.mark.parametrize(
    ("width", "glyphs", "expected"), [(120, UNICODE, WIDE), (80, UNICODE, MIDDLE), (40, ASCII, NARROW)]
)
def test_what_is_shown(width: int, glyphs: Glyphs, expected: str) -> None:
    assert shown(busy(), width, glyphs) == expected


def test_at_the_start() -> None:
    assert shown(State(NOW - 4_200), 80) == (
        "● starting · 4.2 s\n"
        "kafka://user:***@broker-1.example.org:9092 → hdfs://namenode:8020/srv/mirror\n"
        "rows                   0  0/s\n"
        "lag                    ?  not known yet\n"
        "last commit     none yet\n"
        "quarantined 0 · gaps 0 · dead letters 0\n"
    )


def test_why_it_waits() -> None:
    state = told([OutageBegan("no broker answers: " + "refused, " * 30, NOW - 30_000), Unmirrored({"x": "y"})], busy())
    lines = shown(state, 80).splitlines()
    assert lines[0] == "● waiting for the backend · 30 s"
    assert lines[2].startswith("no broker answers: refused, ")
    assert [line for line in lines if "refused" in line] == lines[2:5]
    assert lines[-2] == "quarantined 1 · gaps 1 · dead letters 30 · not mirrored 1"


def test_why_it_stopped() -> None:
    lines = shown(told([Stopped("the disk is full", NOW)], busy()), 80).splitlines()
    assert (lines[0], lines[2]) == ("● stopped · 1 min 45 s", "the disk is full")


def test_colours_are_an_addition() -> None:
    coloured = shown(busy(), 80, colours=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in shown(busy(), 80)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_names_of_others_do_no_harm(glyphs: Glyphs) -> None:
    state = told([batch(11, {}, (Gap(EVIL, 1, None),)), OutageBegan(EVIL, BEGIN)], busy())._replace(lag={EVIL: 10**9})
    text = shown(state, 200, glyphs)
    harmless = r"[red]evil[/red]\x1b[31m\n\r\x07\u202e\u200b\x9b2J"
    assert text.count(harmless) == 3
    assert all(line.isprintable() for line in text.splitlines())
    assert (
        len(text.splitlines())
        == len(shown(state._replace(lag={"plain": 1}, waiting=None), 200, glyphs).splitlines()) + 1
    )
    assert summary(state, NOW, glyphs).count(harmless) == 1


names = st.text(min_size=1, max_size=60)


@given(
    log=names,
    reason=names,
    width=st.integers(40, 140),
    glyphs=st.sampled_from([UNICODE, ASCII]),
    lag=st.integers(0, 10**11),
    waits=st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(  # noqa: PLR0913 - examples
    *, log: str, reason: str, width: int, glyphs: Glyphs, lag: int, waits: bool
) -> None:
    gap = (Gap(log, 1, 2),)
    state = told([batch(11, {"data": lag}, gap), Progressed(1, 1, {log: lag}, BEGIN + 100_201)], busy())
    state = told([OutageBegan(reason, BEGIN)], state) if waits else state
    drawn = picture(state, ABOUT._replace(out=log), NOW, width, glyphs)
    assert all(cell_len(line) <= width for line in drawn.plain.split("\n"))
    assert glyphs is UNICODE or drawn.plain.isascii()


@given(st.text(), st.integers(1, 50), st.sampled_from([UNICODE, ASCII]))
def test_what_is_cropped_fits(text: str, width: int, glyphs: Glyphs) -> None:
    assert cell_len(cropped(clean(text, glyphs), width, glyphs.more)) <= width


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("orders/12", 9, "orders/12"), ("orders-of/12", 9, "order…/12"), ("注文注文/12", 9, "注文 …/12")],
)
def test_cropped_in_the_middle(text: str, width: int, expected: str) -> None:
    assert cropped(text, width, "…") == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (-5_000, "0.0 s"),
        (0, "0.0 s"),
        (9_949, "9.9 s"),
        (10_000, "10 s"),
        (59_999, "59 s"),
        (60_000, "1 min 0 s"),
        (600_000, "10 min"),
        (3_600_000, "1 h 0 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_ages(milliseconds: int, expected: str) -> None:
    assert age(milliseconds) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (61_249_999, "61 MB"),
        (2_500_000_000, "2.5 GB"),
        (10**16, "10,000 TB"),
    ],
)
def test_sizes(count: int, expected: str) -> None:
    assert size(count) == expected


def test_the_summary() -> None:
    state = told([Unmirrored({"b": "it is full", "a": "it is old"})], busy())
    assert summary(state, NOW) == (
        "679,006 rows mirrored in 10 batches and 1 min 45 s\n"
        "678,975 messages, 30 dead letters, 1 quarantined; 40 files, 3.5 MB\n"
        "1 gap: orders/0 from 10 to 19\n"
        "2 destinations not mirrored\na: it is old\nb: it is full"
    )
    assert summary(told([batch(1, {"data": 1})]), BEGIN + 2_000) == (
        "1 row mirrored in 1 batch and 2.0 s\n1 message, 0 dead letters, 0 quarantined; 4 files, 350 kB"
    )
