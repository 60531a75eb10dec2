"""Lists of declarations, and that every bridge makes the same ones."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.topology import declarations

GIB = 1 << 30


def test_a_partition_keeps_its_order_on_every_version() -> None:
    """Below 4.0 a limit of -1 destroys messages; without one what is given back goes to the end."""
    step = declarations.partition_queue("q", "r")
    assert step.arguments == {
        "queue": "q",
        "durable": True,
        "arguments": {
            "x-queue-type": "quorum",
            "x-single-active-consumer": True,
            "x-delivery-limit": 1_000_000_000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "r",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    }


def test_partition_0_gets_the_rest_only_when_all_others_are_bound() -> None:
    bound = [(step.arguments["queue"], step.arguments["exchange"]) for step in declarations.group_bindings("d", "g", 3)]
    parts = [(f"d.g.p{partition}", "d.parts") for partition in range(3)]
    assert bound == [*parts, ("d.g.p0", "d.rest")]


@given(st.integers(1, 1 << 62))
def test_a_log_is_cut_into_files(log_bytes: int) -> None:
    stream, bound = declarations.log("d", log_bytes)
    arguments = stream.arguments["arguments"]
    assert isinstance(arguments, dict)
    assert arguments["x-max-length-bytes"] == log_bytes
    assert 1 <= arguments["x-stream-max-segment-size-bytes"] <= min(500_000_000, max(1, log_bytes // 8))
    assert bound.arguments == {"queue": "d.log", "exchange": "d", "routing_key": "#"}


def test_without_a_log_there_is_no_stream() -> None:
    assert declarations.log("d", 0) == []
    with_log, without = declarations.destination("d", GIB), declarations.destination("d", 0)
    assert with_log[: len(without)] == without
    assert [step.method for step in with_log[len(without) :]] == ["queue_declare", "queue_bind"]


def test_what_exists_already_is_only_check_existing() -> None:
    everything = [
        *declarations.check_existing(Existing(exchange="e")),
        *declarations.check_existing(Existing(queue="q")),
        *declarations.check_existing(Existing(exchange="e", queue="q")),
        *declarations.check_destination("d"),
    ]
    assert [step.arguments.get("passive") for step in everything] == [True] * 7
    assert declarations.check_existing(Existing(log=True)) == []


def test_how_a_group_hears_of_an_exchange_of_others() -> None:
    bound = [
        *declarations.log("d", 1, Existing(exchange="e"))[1:],
        *declarations.log("d", 1, Existing(exchange="e", routing_key="k"))[1:],
        *declarations.log("d", 1, Existing(exchange="e", routing_key=""))[1:],
    ]
    assert [(step.arguments["exchange"], step.arguments["routing_key"]) for step in bound] == [
        ("e", "#"),
        ("e", ""),
        ("e", "k"),
        ("e", ""),
    ]
    bound = declarations.group_bindings("d", "g", 1, Existing(exchange="e"))
    assert [(step.arguments["queue"], step.arguments["routing_key"]) for step in bound] == [
        ("d.g.p0", "#"),
        ("d.g.p0", ""),
    ]
