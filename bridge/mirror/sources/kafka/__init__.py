"""Kafka as a source: its topics, read by ranges of offsets."""
