"""Kafka: Spark's own connector, and the bridge's own mapping behind it."""
