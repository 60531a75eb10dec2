"""Delayed messages: the delay topics, publishing to them, and forwarding from them."""
