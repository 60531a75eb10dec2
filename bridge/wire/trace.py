"""W3C trace context: which `traceparent` is one."""

from typing import Final

_HEX: Final = frozenset(b"0123456789abcdef")
_VISIBLE: Final = range(0x21, 0x7F)
_LENGTH: Final = 55


def is_traceparent(raw: bytes) -> bool:
    """Whether raw is a version 00 to fe traceparent; an invalid one is ignored, as the recommendation demands (3.2)."""
    if len(raw) < _LENGTH or (len(raw) > _LENGTH and (raw[:2] == b"00" or raw[_LENGTH] != ord("-"))):
        return False
    if raw[2] != ord("-") or raw[35] != ord("-") or raw[52] != ord("-") or raw[:2] == b"ff":
        return False
    if any(byte not in _VISIBLE for byte in raw[_LENGTH:]):
        return False  # a later version may say more, but never break a header
    if not _HEX.issuperset(raw[:2] + raw[3:35] + raw[36:52] + raw[53:55]):
        return False
    return raw[3:35] != b"0" * 32 and raw[36:52] != b"0" * 16
