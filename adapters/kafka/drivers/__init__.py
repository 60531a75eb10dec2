"""The client libraries, each behind the same seam; which one it is, nobody outside knows."""

from collections.abc import Sequence

from adapters.kafka import names
from adapters.kafka.drivers.base import Acks, Consumer, Member, Producer
from adapters.kafka.options import Options
from bridge.errors import CannotStart


def producer(options: Options, acks: Acks) -> Producer:
    """Return a produce side that is not started yet. Raises `CannotStart` if the library is not installed."""
    try:
        if options.client == "confluent":
            from adapters.kafka.drivers.confluent.producer import ConfluentProducer  # noqa: PLC0415

            return ConfluentProducer(options, acks)
        from adapters.kafka.drivers.kafka_python.producer import KafkaPythonProducer  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise _advice(missing) from missing
    return KafkaPythonProducer(options, acks)


def consumer(options: Options, group: str, topics: Sequence[str], member: Member) -> Consumer:
    """Return a member that has not joined yet. Raises `CannotStart` if the library is not installed."""
    if options.instance is not None:
        # two members of one group and one name would throw each other out
        options = options._replace(instance=names.member(options.instance, topics[0]))
    try:
        if options.client == "confluent":
            from adapters.kafka.drivers.confluent.consumer import ConfluentConsumer  # noqa: PLC0415

            return ConfluentConsumer(options, group, topics, member)
        from adapters.kafka.drivers.kafka_python.consumer import KafkaPythonConsumer  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise _advice(missing) from missing
    return KafkaPythonConsumer(options, group, topics, member)


def _advice(missing: ModuleNotFoundError) -> CannotStart:
    if missing.name == "confluent_kafka":
        return CannotStart("client=confluent needs confluent-kafka: pip install 'openmessaging-bridge[kafka,fast]'.")
    return CannotStart(f"Kafka needs {missing.name}: pip install 'openmessaging-bridge[kafka]'.")
