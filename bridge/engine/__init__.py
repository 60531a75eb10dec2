"""Applies the same delivery rules to every backend: partitions, key order, priority, expiry, leases, dead letters."""
