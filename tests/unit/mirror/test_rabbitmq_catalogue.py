"""Which streams are mirrored, and which life of a stream an offset belongs to."""

from typing import Final

from adapters.rabbitmq.options import Existing, Options
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.declarations import Layout
from bridge.mirror.sources.rabbitmq.catalogue import Stream, behind, logs, streams
from bridge.mirror.sources.ranges import Position

OPTIONS: Final = Options(servers=(("localhost", 5672),))
LAYOUT: Final = Layout(4, 1 << 20)
LONG: Final = "d" * 249


def test_the_book_says_what_there_is_and_settings_go_before_it() -> None:
    book = {"orders": LAYOUT, LONG: LAYOUT, "silent": Layout(4, 0), "muted": LAYOUT, "loud": Layout(2, 0)}
    said = {
        "muted": Existing(log=False),
        "loud": Existing(log=True),
        "foreign": Existing(exchange="x"),
        "foreign.silent": Existing(exchange="x", log=False),
        "legacy": Existing(queue="q"),
    }
    options = OPTIONS._replace(destinations=said)
    found, without = streams(book, options)
    assert found == {
        "orders.log": Stream("orders", 4),
        names.log(LONG): Stream(LONG, 4),
        "loud.log": Stream("loud", 2),
        "foreign.log": Stream("foreign", 1),
    }
    assert without == ["foreign.silent", "legacy", "muted", "silent"]


def test_without_logs_in_the_url_only_what_the_book_has_is_mirrored() -> None:
    options = OPTIONS._replace(log=False, destinations={"foreign": Existing(exchange="x")})
    assert streams({"orders": LAYOUT}, options) == ({"orders.log": Stream("orders", 4)}, ["foreign"])


def test_dead_letters_have_a_log_whatever_the_book_says() -> None:
    options = OPTIONS._replace(log=False, destinations={"legacy.dlq": Existing(queue="q")})
    found, without = streams({"orders": Layout(4, 0), "orders.dlq": Layout(4, 0)}, options)
    assert (found, without) == ({"orders.dlq.log": Stream("orders.dlq", 4)}, ["legacy.dlq", "orders"])


def test_a_stream_that_grows_is_the_same_log() -> None:
    before = {"a.log": Position(0, 5, 5)}
    assert logs({"a.log": (2, 9), "b.log": (0, 1)}, (), before, ()) == {"a.log": (2, 9), "b.log": (0, 1)}
    assert behind({"a.log": (2, 9)}, before) == []


def test_a_stream_that_ends_before_its_place_is_first_doubted_then_another() -> None:
    before = {"a.log": Position(0, 5, 5)}
    found = {"a.log": (0, 3)}
    assert behind(found, before) == ["a.log"]
    assert logs(found, (), before, ()) == {"a.log": (0, 5)}
    assert logs(found, (), before, {"a.log"}) == {"a.log#1": (0, 3)}


def test_one_that_is_made_anew_after_it_was_gone_is_another_and_so_on() -> None:
    gone = Position(0, 5, 5, (5, None))
    assert logs({}, ["a.log"], {"a.log": Position(0, 5, 5)}, ()) == {}
    assert logs({"a.log": (0, 3)}, (), {"a.log": gone}, ()) == {"a.log#1": (0, 3)}
    before = {"a.log": gone, "a.log#1": gone, "a.log#2": Position(0, 2, 2)}
    assert logs({"a.log": (0, 3)}, (), before, ()) == {"a.log#2": (0, 3)}
    assert behind({"a.log": (0, 1)}, before) == ["a.log"]
    assert logs({"a.log": (0, 1)}, (), before, {"a.log"}) == {"a.log#3": (0, 1)}


def test_one_that_the_book_does_not_name_is_not_gone() -> None:
    before = {"a.log": Position(1, 5, 5), "b.log": Position(0, 5, 5, (5, None))}
    assert logs({}, (), before, ()) == {"a.log": (1, 5)}
