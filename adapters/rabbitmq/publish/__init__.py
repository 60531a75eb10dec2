"""From an outgoing message to its confirm."""
