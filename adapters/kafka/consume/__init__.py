"""Consuming: a member of a consumer group, the records it has fetched, and the commits of what is settled."""
