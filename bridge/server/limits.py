"""Limits of connections that both servers, Hypercorn and Granian, apply."""

BACKLOG = 1024
"""Connections that the kernel queues while the event loop is busy."""

MAX_STREAMS = 128
"""Requests that one HTTP/2 connection may have open at a time."""

KEEP_ALIVE = 75.0
"""Seconds after which an idle connection is closed: longer than the connection pools of common clients wait."""

PING_INTERVAL = 30.0
"""Seconds between pings of an HTTP/2 client. Granian counts from the last frame, Hypercorn from the last ping."""

PING_TIMEOUT = 20.0
"""Seconds in which an HTTP/2 client must answer a ping. After that its connection is closed."""
