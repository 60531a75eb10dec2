"""Upkeep of a mirror: compaction of closed hours, retention. Beside a running job, one at a time."""
