"""Looks at a topic: what it is, who reads it, what lies in it."""

from adapters.kafka.url import parse
from bridge.migrate.finding import Report
from bridge.migrate.kafka import groups, records, topic
from bridge.migrate.kafka.facts import Topic
from bridge.migrate.kafka.inspector import Inspector
from bridge.migrate.kafka.sampling import sample
from bridge.settings import Settings


async def examine_topic(settings: Settings, name: str) -> Report:
    """Return what was found. Raises `ValueError` for a wrong URL, `BridgeError` for what the brokers refuse."""
    options = parse(settings.backend)
    inspector = Inspector(options)
    try:
        parts = await inspector.layout(name)
        bounds = await inspector.bounds(name, [part["partition_index"] for part in parts if part["leader_id"] >= 0])
        seen = Topic(
            name=name,
            partitions=len(parts),
            replicas=min(len(part["replica_nodes"]) for part in parts),
            configs=await inspector.configs(name),
            bounds=bounds,
            groups=await inspector.groups(name),
            sample=await sample(options, name, bounds),
        )
    finally:
        await inspector.close()
    findings = [
        *topic.judge(seen, options, settings.limits.body),
        *groups.judge(seen, settings.delivery.new_group),
        *records.judge(seen, settings.limits.body),
    ]
    return Report("topic", name, findings)
