"""Transactions: prepared messages in an internal topic, committed with one transaction of Kafka's."""
