"""Codecs between bytes and messages, in both directions. Pure functions: no I/O, no clock, no logging."""
