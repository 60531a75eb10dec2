"""Free ports of 127.0.0.1 that stay ours while nothing listens on them: a killed broker comes back to its own."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """Yield the number of a port that the kernel gives to no other program until the end of the context.

    A socket is bound to it and does not listen, so connections are refused. Where both ask for SO_REUSEADDR, as Java
    does, Linux lets another socket listen on the same port.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
