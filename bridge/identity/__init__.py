"""Who a client is, by its token, and what it may do, by rules."""
