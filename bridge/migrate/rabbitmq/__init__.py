"""A queue of RabbitMQ, as native programs have left it."""
