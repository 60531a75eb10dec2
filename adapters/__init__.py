"""Backends: each package here maps messages onto one kind of broker and knows nothing of HTTP."""
