"""The pure checks of `check --migrate`, on facts that no broker has to show."""

import json
from collections.abc import Iterable, Iterator, Mapping

import pytest

from adapters.kafka.mapping import Record
from adapters.kafka.options import Options
from adapters.rabbitmq.options import Existing
from bridge.migrate.kafka_record_checks import check_records
from bridge.migrate.kafka_topic_and_group_checks import GroupFacts, TopicFacts, check_groups, check_topic
from bridge.migrate.rabbitmq_queue_checks import (
    ArgumentValue,
    Declaration,
    DestinationEntry,
    ExchangeFacts,
    QueueFacts,
    check_exchange,
    check_queue,
)
from bridge.migrate.rabbitmq_queue_inspector import Difference, parse_difference
from bridge.migrate.report import Finding, Report, Verdict, as_json, as_text

CONFIGS = {
    "min.insync.replicas": "1",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
}
TOPIC = TopicFacts("orders", 2, 3, CONFIGS, {0: (0, 10), 1: (5, 10)}, [], [])
KAFKA = Options(servers=("localhost:9092",))
BODY_MAX = 4 << 20
DURABLE = Declaration(durable=True, auto_delete=False, internal=False, kind=None, arguments={"x-queue-type": "quorum"})
QUEUE = QueueFacts("billing", exclusive=False, messages=3, consumers=1, declaration=DURABLE)
ENTRY = DestinationEntry("orders", Existing(exchange="shop", routing_key=None, queue="billing"))


def topics() -> Iterator[TopicFacts]:
    yield TOPIC
    yield TOPIC._replace(name="or ders")
    yield TOPIC._replace(name="oms.orders")
    yield TOPIC._replace(name="orders.dlq")
    yield TOPIC._replace(bounds={0: (0, 10)})
    yield TOPIC._replace(configs={}, groups=None)
    for name, value in (
        *(("min.insync.replicas", "4"), ("min.insync.replicas", "3"), ("retention.ms", "60000")),
        *(("retention.ms", "-1"), ("cleanup.policy", "compact"), ("max.message.bytes", "9000000")),
        ("message.timestamp.type", "LogAppendTime"),
    ):
        yield TOPIC._replace(configs=CONFIGS | {name: value})


def groups() -> Iterator[GroupFacts]:
    plain = GroupFacts("billing", "classic", 0, "", {0: 3, 1: 7})
    yield plain
    yield plain._replace(name="billing team")
    yield plain._replace(kind="consumer")
    yield plain._replace(members=2, assignor="range")
    yield plain._replace(members=2, assignor="cooperative-sticky")
    yield plain._replace(committed={0: 3})
    yield plain._replace(committed={0: 3, 1: 4})


def records() -> Iterator[Record]:
    headers = (
        [("region", b"eu")],
        [("oms_d_due", b"1")],
        [("oms_p_region", b"eu")],
        [("a", b"1"), ("a", b"2")],
        [("a", b"\xff")],
        [(f"h{n}", b"v" * 5000) for n in range(9)],
    )
    for offset, each in enumerate(headers):
        yield Record("orders", 0, offset, 1, b"key", b"v", each)
    for key, value in ((None, b"v"), (b"\xff", b"v"), (b"k" * 5000, b"v"), (b"k", None), (b"k", b"v" * (5 << 20))):
        yield Record("orders", 0, 9, 1, key, value, [])


def queues() -> Iterator[QueueFacts]:
    yield QUEUE
    yield QUEUE._replace(exclusive=True, declaration=None)
    yield QUEUE._replace(declaration=None)
    yield QUEUE._replace(declaration=DURABLE._replace(durable=False, auto_delete=True, arguments={}))
    each: tuple[Mapping[str, ArgumentValue], ...] = (
        {"x-queue-type": "stream"},
        {"x-expires": 1000, "x-message-ttl": 1000, "x-max-priority": 9, "x-dead-letter-exchange": "dlx"},
        {"x-max-length": 5},
        {"x-max-length-bytes": 5, "x-overflow": "reject-publish"},
        {"x-single-active-consumer": True},
        {"x-queue-type": "quorum", "x-delivery-limit": 3},
        {"x-queue-type": "quorum", "x-delivery-limit": None},
    )
    for arguments in each:
        yield QUEUE._replace(declaration=DURABLE._replace(arguments=arguments))


def exchanges() -> Iterator[ExchangeFacts | None]:
    topic = DURABLE._replace(kind="topic", arguments={})
    yield None
    yield ExchangeFacts("shop", exists=False, declaration=None)
    yield ExchangeFacts("shop", exists=True, declaration=None)
    for declaration in (
        *(topic, topic._replace(kind="fanout"), topic._replace(kind="headers"), topic._replace(kind="x-delayed")),
        *(topic._replace(internal=True), topic._replace(auto_delete=True), topic._replace(durable=False)),
    ):
        yield ExchangeFacts("shop", exists=True, declaration=declaration)


def findings() -> Iterator[Finding]:
    for topic in topics():
        yield from check_topic(topic, KAFKA, BODY_MAX)
        yield from check_groups(topic, "earliest")
    yield from check_topic(TOPIC, KAFKA._replace(lanes=True), BODY_MAX)
    yield from check_groups(TOPIC._replace(groups=list(groups())), "earliest")
    yield from check_records(TOPIC, BODY_MAX, "prefixed")
    yield from check_records(TOPIC._replace(sample=list(records())), BODY_MAX, "plain")
    for record in records():
        yield from check_records(TOPIC._replace(sample=[record]), BODY_MAX, "prefixed")
    for queue in queues():
        yield from check_queue(queue, ENTRY, 16, (4, 0, 0))
    yield from check_queue(QUEUE, None, 16, (3, 13, 0))
    yield from check_queue(QUEUE, ENTRY._replace(destination="or ders"), 16, (4, 0, 0))
    for exchange in exchanges():
        yield from check_exchange(exchange, ENTRY)


def named(found: Iterable[Finding], verdict: Verdict) -> set[str]:
    return {finding.subject for finding in found if finding.verdict is verdict}


def test_each_advice_is_a_sentence_that_begins_with_what_to_do(subtests: pytest.Subtests) -> None:
    for finding in set(findings()):
        with subtests.test(finding.subject, seen=finding.seen):
            assert finding.advice[0].isupper()
            assert finding.advice.endswith((".", ".)"))
            assert ".." not in finding.advice
            assert finding.verdict is not Verdict.FAILS or not finding.advice.startswith("Nothing to do")


def test_an_ordinary_topic_and_an_ordinary_queue_have_nothing_that_fails() -> None:
    sample = [Record("orders", 0, 0, 1, b"key", b"v", [("region", b"eu")])]
    topic = TOPIC._replace(partitions=1, bounds={0: (0, 1)}, sample=sample)
    found = [*check_topic(topic, KAFKA, BODY_MAX), *check_groups(topic, "earliest")]
    plain = [*found, *check_records(topic, BODY_MAX, "plain")]
    assert {finding.verdict for finding in plain} == {Verdict.WORKS}
    prefixed = [*found, *check_records(topic, BODY_MAX, "prefixed")]
    assert {finding.verdict for finding in prefixed} == {Verdict.WORKS, Verdict.DIFFERS}
    assert named(prefixed, Verdict.DIFFERS) == {"headers of HTTP producers"}
    assert named(check_queue(QUEUE, ENTRY, 16, (4, 0, 0)), Verdict.UNKNOWN) >= {"bindings", "policies", "headers"}
    assert named(check_queue(QUEUE, ENTRY, 16, (4, 0, 0)), Verdict.FAILS) == set()


def test_a_report_begins_with_what_fails() -> None:
    works, fails = (Finding(name, "x", v, "Do it.") for name, v in (("a", Verdict.WORKS), ("b", Verdict.FAILS)))
    report = Report("topic", "orders", [works, fails])
    assert not report.fit
    lines = as_text(report).splitlines()
    assert lines[0] == "topic orders: 1 works, 1 will not work"
    assert lines.index("WILL NOT WORK") < lines.index("  b: x") < lines.index("WORKS") < lines.index("  a: x")
    assert json.loads(as_json(report))["findings"][1]["verdict"] == "will not work"
    assert Report("topic", "orders", [works]).fit


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ("the value '5' of type 'signedint'", 5),
        ("the value '5' of type 'longstr'", "5"),
        ("none", None),
        ("'false'", False),
    ],
)
def test_a_difference_is_read_from_a_refusal(current: str, expected: ArgumentValue) -> None:
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'x-a' for queue 'q' in vhost '/': received '1' but current is "
        + current
    )
    assert parse_difference(text) == Difference("x-a", expected)
    assert parse_difference(text[:60]) is None
