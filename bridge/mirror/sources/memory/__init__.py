"""The in-memory backend: the logs that a bridge shows of it."""
