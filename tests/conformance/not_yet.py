"""Sentences that no test here quotes, each with the reason."""

from typing import Final

_OWN_BROKER: Final = "needs a broker to stop and to kill"
_INSIDE: Final = "not visible over HTTP: tests/unit"
_PROSE: Final = "says why this page exists, promises nothing to a client"

NOT_YET: Final = {
    "meaning.same": "shown by this suite as a whole, which runs on every backend",
    "priority.backlog": "needs a backend told to do so: tests/kafka/test_kafka_lanes.py",
    "delay.late": "a speed: benchmarks, on an idle machine",
    "delay.broker-restart": f"{_OWN_BROKER}: tests/kafka/test_kafka_delay.py",
    "dead.confirmed": "needs a backend that refuses on command: tests/unit",
    "native.neighbours": "needs native clients: tests/kafka/test_kafka_native_in.py, test_kafka_native_out.py",
    "durable.default": f"{_OWN_BROKER}: tests/kafka/test_kafka_ledger.py, test_kafka_trouble_cluster.py",
    "start.without-broker": f"{_OWN_BROKER}: tests/kafka/test_kafka_trouble_broker.py",
    "window.one": _INSIDE,
    "window.memory": _INSIDE,
    "window.kafka": "not visible over HTTP: tests/kafka/test_kafka_consume.py, tests/unit/adapters_kafka",
    "window.rabbitmq": "not visible over HTTP: tests/rabbitmq/test_rabbitmq_consume.py, tests/unit/adapters_rabbitmq",
    "profile.holes": _PROSE,
    "profile.contract": _PROSE,
    "profile.binding-wins": _PROSE,
    "transport.alpn": "needs the bridge's certificate: tests of bridge/server",
    "transport.ports": "the default ports: the tests of the settings; a test never uses a fixed port",
    "fields.head": "the head of the table",
    "settle.confirmed": "needs a backend that refuses on command: tests/unit",
    "callback.vetted": "needs a resolver that lies: tests/security",
    "rest.retry-after": "needs a bridge with tiny limits: tests/http",
    "rest.load": "needs a bridge with tiny limits: tests/http",
}
