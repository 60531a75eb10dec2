"""Messages that wait in Kafka: the levels, who publishes to them, who moves them on."""
