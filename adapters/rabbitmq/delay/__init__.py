"""Messages that wait in RabbitMQ until they are due."""
