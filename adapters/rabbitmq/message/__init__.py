"""From a message to AMQP properties and headers, and back."""
