"""Exchanges, queues and streams: their names, their declarations, and the catalogue of destinations and groups."""
