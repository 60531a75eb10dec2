"""Groups: their queues, copies of the log for late groups, and which bridge consumes which partition."""
