"""The names by which the client's retry of a message is recognized. Pure.

A client names a message by its messageId, by an idempotency key, or by both. A name belongs to a destination.
"""

from typing import Final
from uuid import UUID, uuid5

from bridge.message import Message

Name = tuple[str, str, str | None, str]
"""`ID` or `KEY`; the destination; the source of a CloudEvent, whose id is unique only within it; the text.

A tuple, so that no text that a client chooses can make two names equal.
"""
ID: Final = "messageId"
KEY: Final = "idempotency key"

_KEYS: Final = UUID("9d5f0f1c-6a3e-5f0e-8a54-7d1a8a1f6c0b")
"""The namespace of the messageIds that are made from idempotency keys."""


def names_of(message: Message, key: str | None) -> tuple[Name, ...]:
    """Return the names of a message that has a messageId, and perhaps an idempotency key."""
    name = name_of(message)
    return (name,) if key is None else (name, (KEY, message.destination, None, key))


def name_of(message: Message) -> Name:
    """Return the name of a message by its messageId."""
    return ID, message.destination, message.properties.get("source"), message.message_id or ""


def named(message: Message, key: str, place: int | None = None) -> Message:
    """Return the message with a messageId: its own, or one that is made of the idempotency key of its request.

    `place`: of the message in a batch or a stream; None: the request is one message. Each retry gets the same id, so
    the journal, which keeps messageIds, has the key after a restart.
    """
    if message.message_id is not None:
        return message
    # Neither a destination nor a key has a NUL, so no key of one message equals a key with a place.
    text = key if place is None else f"{place}\0{key}"
    return message._replace(message_id=str(uuid5(_KEYS, f"{message.destination}\0{text}")))
