"""A topic of Kafka, as native programs have left it."""
