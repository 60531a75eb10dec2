"""RabbitMQ: the streams beside its destinations, read by ranges of offsets."""
