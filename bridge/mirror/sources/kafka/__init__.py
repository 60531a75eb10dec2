"""Kafka as a source of the mirror."""
