"""The ceiling of the Kafka figures: the same work done by a program that uses the client library itself.

Run as a program: `native.py produce|transact|consume|commit kafka-python|confluent SERVERS TOPIC NUMBER AT_ONCE`. It
prints the messages per second and its own CPU seconds for all of them, a warm-up not included.

- produce: 1 KiB with a key and two headers, acknowledged by all replicas in sync, `AT_ONCE` of them in flight.
- transact: the same messages, each in its own transaction, one after the other, as one producer has to.
- consume: read, look at each, commit once for what a poll brought: the idiom of a native consumer.
- commit: read, and commit after each message, the next one when that is confirmed: what an acknowledgement is.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

BODY: Final = b"0123456789abcdef" * 64
HEADERS: Final[list[tuple[str, str | bytes | None]]] = [("region", b"eu"), ("content-type", b"application/json")]
WARM_UP: Final = 500
PATIENCE: Final = 60


def main() -> None:
    """Do what the command line says and print what it took."""
    work, client, servers, topic, number, at_once = sys.argv[1:]
    begin = WORKS[work, client](servers, topic, int(at_once))
    begin(WARM_UP)
    cpu, at = time.process_time(), time.perf_counter()
    begin(int(number))
    print(int(number) / (time.perf_counter() - at), time.process_time() - cpu)


def _produce_python(servers: str, topic: str, at_once: int) -> Callable[[int], None]:
    from kafka import KafkaProducer  # noqa: PLC0415 - only the client under measurement is loaded

    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=2, batch_size=131072)
    slots = threading.Semaphore(at_once)

    def produce(number: int) -> None:
        for turn in range(number):
            slots.acquire()
            producer.send(topic, BODY, b"customer-%d" % turn, HEADERS).add_both(lambda _: slots.release())
        producer.flush()

    return produce


def _produce_confluent(servers: str, topic: str, at_once: int) -> Callable[[int], None]:
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2})
    flying = 0

    def landed(*_: object) -> None:
        nonlocal flying
        flying -= 1

    def produce(number: int) -> None:
        nonlocal flying
        for turn in range(number):
            while flying >= at_once:
                producer.poll(0.1)
            flying += 1
            producer.produce(topic, BODY, b"customer-%d" % turn, headers=HEADERS, on_delivery=landed)
        producer.flush()

    return produce


def _transact_python(servers: str, topic: str, _: int) -> Callable[[int], None]:
    from kafka import KafkaProducer  # noqa: PLC0415

    # with the default of 100 it waits most of the time, and makes 30 transactions a second instead of 160
    settings = {"transactional_id": f"native-{time.time_ns()}", "retry_backoff_ms": 5}
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    producer.init_transactions()

    def transact(number: int) -> None:
        for turn in range(number):
            producer.begin_transaction()
            producer.send(topic, BODY, b"customer-%d" % turn, HEADERS)
            producer.commit_transaction()

    return transact


def _transact_confluent(servers: str, topic: str, _: int) -> Callable[[int], None]:
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"native-{time.time_ns()}"})
    producer.init_transactions()

    def transact(number: int) -> None:
        for turn in range(number):
            producer.begin_transaction()
            producer.produce(topic, BODY, b"customer-%d" % turn, headers=HEADERS)
            producer.commit_transaction()

    return transact


def _consumer_python(servers: str, topic: str) -> tuple[Any, Iterator[list[Any]]]:
    from kafka import KafkaConsumer  # noqa: PLC0415

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"native-{time.time_ns()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )

    def polls() -> Iterator[list[Any]]:
        while True:
            yield [record for records in consumer.poll(100).values() for record in records]

    return consumer, polls()


def _consumer_confluent(servers: str, topic: str) -> tuple[Any, Iterator[list[Any]]]:
    from confluent_kafka import Consumer  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"native-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])

    def polls() -> Iterator[list[Any]]:
        while True:
            yield consumer.consume(500, 0.1)

    return consumer, polls()


def _consume(client: str, *, each: bool) -> Callable[[str, str, int], Callable[[int], None]]:
    def begin(servers: str, topic: str, _: int) -> Callable[[int], None]:
        consumer, polls = (_consumer_python if client == "kafka-python" else _consumer_confluent)(servers, topic)
        kept: list[Any] = []

        def messages() -> Iterator[Any]:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if not kept:
                    kept.extend(reversed(next(polls)))
                while kept:
                    yield kept.pop()
            raise RuntimeError("The messages did not come.")

        coming = messages()

        def consume(number: int) -> None:
            for _ in range(number):
                message = next(coming)
                if each:
                    _commit(client, consumer, message)
                elif not kept:
                    _commit(client, consumer, None)

        return consume

    return begin


def _commit(client: str, consumer: Any, message: Any) -> None:  # noqa: ANN401 - either library's own
    """Commit one message and wait, or with None the position of all, without waiting."""
    if message is None:
        consumer.commit_async() if client == "kafka-python" else consumer.commit(asynchronous=True)
    elif client == "kafka-python":
        from kafka import OffsetAndMetadata, TopicPartition  # noqa: PLC0415

        place = TopicPartition(message.topic, message.partition)
        consumer.commit({place: OffsetAndMetadata(message.offset + 1, "", -1)})
    else:
        consumer.commit(message=message, asynchronous=False)


WORKS: Final = {
    ("produce", "kafka-python"): _produce_python,
    ("produce", "confluent"): _produce_confluent,
    ("transact", "kafka-python"): _transact_python,
    ("transact", "confluent"): _transact_confluent,
    **{("consume", client): _consume(client, each=False) for client in ("kafka-python", "confluent")},
    **{("commit", client): _consume(client, each=True) for client in ("kafka-python", "confluent")},
}

if __name__ == "__main__":
    main()
