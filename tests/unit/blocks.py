"""Blocks of messages of a log, as the bridge writes them."""

from collections.abc import Sequence

from bridge.message import Message
from bridge.wire.log_block import BlockWriter, encode_part


def encode(
    messages: Sequence[Message],
    offsets: Sequence[int],
    following: int,
    dropped: Sequence[tuple[int, int]],
    part: int = 1000,
) -> bytes:
    """Return messages of one destination as one block, which is written in parts."""
    writer = BlockWriter()
    for start in range(0, len(messages), part):
        writer.add(encode_part(messages[start : start + part], offsets[start : start + part]))
    assert len(writer) == len(messages)
    return writer.finish(following, dropped)
