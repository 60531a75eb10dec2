"""Settings of a node of a Kafka for tests: small, quick to start, quick to notice a lost neighbour."""

from collections.abc import Mapping, Sequence

Ports = Mapping[str, int]
"""Of one node: listener → port of 127.0.0.1."""


def properties_of(number: int, nodes: Sequence[Ports]) -> dict[str, str]:
    """Return the settings of node `number`, counted from 1, among `nodes`. Its data folder is not among them."""
    ports = nodes[number - 1]
    listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    replicas = str(len(nodes))
    in_sync = str(min(len(nodes), 2))
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(f"{at}@127.0.0.1:{of['CONTROLLER']}" for at, of in enumerate(nodes, 1)),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": ",".join(listeners[name] for name in ports if name != "CONTROLLER"),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in ports
        ),
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        # With the defaults, 9 s and 2 s, a broker killed and started again waits 14.6 s for its old self to expire.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(10 << 20),
        "log.cleaner.backoff.ms": "500",  # with the default a test waits 15 s for a topic to be compacted
        "log.segment.bytes": str(128 << 20),
    }
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.replication.factor"] = replicas
        settings[f"{topic}.num.partitions"] = "4"
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.min.isr"] = in_sync
    return settings
