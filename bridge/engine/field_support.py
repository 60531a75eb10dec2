"""How a backend honours the fields of a message, and which of their values are refused. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from adapters.base import Support
from bridge.engine.destination_names import DEAD_LETTER_PROPERTIES
from bridge.errors import FieldUnsupported, HeaderInvalid
from bridge.message import FIELD_INDEX, FIELDS, PRIORITIES, Field, Message

_IGNORED: Final = "ignored"
_EXACTLY_ONCE: Final = 2
_FEATURE_FIELDS: Final = tuple(f for f in FIELDS if f.is_feature)
_INDEXES: Final = tuple(FIELD_INDEX[f.attribute] for f in _FEATURE_FIELDS)
"""Where a message has their values."""
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f]")
"""The control characters of Unicode: C0, DEL and C1."""
COMBINATIONS_KEPT: Final = 1024
"""Combinations of fields whose `Applied` is remembered: all that occur, unless a client tries every one."""


class Applied(dict[str, str]):
    """How each field that a message carried is honoured: field name -> `native`, `emulated` or `ignored`."""

    __slots__ = ("text",)

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        super().__init__(fields)
        self.text = ",".join(f"{name}={support}" for name, support in self.items())
        """The value of `x-oms-applied`."""


class FieldSupport:
    """What one backend does with each field."""

    def __init__(self, fields: Mapping[str, Support]) -> None:
        self._support = {
            f.name: _IGNORED if fields[f.name] is Support.UNSUPPORTED else fields[f.name].value for f in _FEATURE_FIELDS
        }
        self._applied: dict[int, Applied] = {}
        """By the feature fields that are set: a bit for each, the first one is the highest."""

    def applied(self, message: Message) -> Applied:
        """Return how each field that the client set is honoured; without a meaning or support it is ignored."""
        fields_set = 0
        for index in _INDEXES:
            fields_set = fields_set * 2 + (message[index] is not None)
        applied = self._applied.get(fields_set)
        if applied is None:
            names = [f.name for f, index in zip(_FEATURE_FIELDS, _INDEXES, strict=True) if message[index] is not None]
            applied = Applied((name, self._support[name]) for name in names)
            if len(self._applied) < COMBINATIONS_KEPT:
                self._applied[fields_set] = applied
        if message.qos == _EXACTLY_ONCE:
            applied = Applied({**applied, "qos": _IGNORED}.items())
        if message.priority is not None and message.priority not in PRIORITIES:
            applied = Applied({**applied, "priority": _IGNORED}.items())
        return applied

    def check_required(self, require: Sequence[Field], applied: Applied) -> None:
        """Raise `FieldUnsupported` if a field that must be honoured is ignored."""
        for field in require:
            if applied.get(field.name, self._support[field.name]) == _IGNORED:
                raise FieldUnsupported(f"x-oms-require: {field.name} cannot be honoured here; nothing was stored.")


def check_ids(message: Message) -> None:
    """Raise `HeaderInvalid` for a messageId or a transactionId with a control character."""
    for what, text in (("messageId", message.message_id), ("transactionId", message.transaction_id)):
        # Not printable are also some spaces and characters that are not assigned.
        if text is not None and not text.isprintable() and _CONTROL.search(text) is not None:
            raise HeaderInvalid(f"{what}: an id has no control characters, U+0000 to U+001F and U+007F to U+009F.")


def check_properties(message: Message, refusal_of: Callable[[str], str | None] | None) -> None:
    """Raise `HeaderInvalid` for a property that only the bridge sets, and for one whose name the backend refuses.

    `refusal_of`: see `adapters.base`; None: it refuses none.
    """
    for name in message.properties:
        if name.startswith(DEAD_LETTER_PROPERTIES):
            raise HeaderInvalid(
                f"{message.destination}: only the bridge sets properties that begin with {DEAD_LETTER_PROPERTIES}."
                " To produce a dead letter again, leave them out."
            )
        if refusal_of is not None and (refusal := refusal_of(name)) is not None:
            raise HeaderInvalid(f"{message.destination}: {refusal}")
