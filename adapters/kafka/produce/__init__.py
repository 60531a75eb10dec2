"""Producing: the records of messages to Kafka, with librdkafka or kafka-python."""
