"""The driver of confluent-kafka: librdkafka, with a quarter of the CPU per message."""
