"""A bridge in front of RabbitMQ."""

from uuid import uuid4

from tests.bridged import bridged

__all__ = ["backend", "bridged"]


def backend(url: str, **options: object) -> str:
    """Return the URL of a backend whose own exchanges and queues are its own; `url` is that of a virtual host."""
    told = {"prefix": f"t{uuid4().hex[:8]}."} | options
    return f"{url}?" + "&".join(f"{name}={value}" for name, value in told.items())
