"""gzip bodies lie uncompressed in the broker: inflated at publish, deflated again at delivery."""

import gzip
from typing import Final

from bridge.inflate import NotGzip, inflate_up_to

GZIP: Final = "gzip"
INFLATED_MAX: Final = 16 << 20
"""Bytes; a body that inflates to more stays compressed. A gzip bomb costs 50 ms, and no memory afterwards."""
_FAST: Final = 1
"""Level: the result is inflated after one hop; level 6 takes three times as long for a tenth less."""


def inflate(body: bytes) -> bytes | None:
    """Return the inflated body, of several members, too; None if it is larger than `INFLATED_MAX`. Raises `NotGzip`."""
    return inflate_up_to(body, INFLATED_MAX)


def is_gzip(body: bytes) -> bool:
    """Return whether a body is valid gzip, from beginning to end or as far as `INFLATED_MAX`."""
    try:
        inflate(body)
    except NotGzip:
        return False
    return True


def deflate(body: bytes) -> bytes:
    """Return the body as gzip, the same bytes for the same body (no time stamp)."""
    return gzip.compress(body, compresslevel=_FAST, mtime=0)
