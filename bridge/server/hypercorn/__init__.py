"""The server `hypercorn`: Hypercorn's HTTP/1.1 and request state machine, and HTTP/2 on python-h2."""
