"""Groups: their queues, what the log held when they came, and which bridge consumes which partition."""
