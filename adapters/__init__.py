"""Backends: each package here maps messages onto one kind of broker, without HTTP."""
