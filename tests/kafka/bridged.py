"""A bridge in front of Kafka."""

from uuid import uuid4

from tests.bridged import bridged

__all__ = ["backend", "bridged"]


def backend(servers: str, **options: object) -> str:
    """Return the URL of a backend whose own topics are its own."""
    told = {"prefix": f"t{uuid4().hex[:8]}."} | options
    return f"kafka://{servers}?" + "&".join(f"{name}={value}" for name, value in told.items())
