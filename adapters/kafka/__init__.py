"""The Kafka backend: the same meaning on a broker that people already run."""

import ctypes
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from adapters.base import Adapter
from adapters.kafka.options import parse
from bridge.errors import needs_extra

_ARENA_MAX: Final = -8
"""`M_ARENA_MAX` of malloc.h."""
_CODECS: Final = ("snappy", "zstandard")
"""Modules that kafka-python imports if they are there."""


class _Codec(ModuleType):
    """Stands for one of them until it is used: many bridges never do, and they take 2 MiB."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of a module
        return getattr(import_module(self.__name__), name)


def connect(url: str) -> Adapter:
    """Build the adapter that a `kafka://` URL describes.

    Raises `ValueError` with what is allowed, or `CannotStart` if the client library, an extra, is not installed.
    """
    options = parse(url)
    try:
        _defer_codecs()
        from adapters.kafka.adapter import KafkaAdapter  # noqa: PLC0415 - it brings the client library
    except ModuleNotFoundError as missing:
        raise needs_extra("Kafka", missing.name, "kafka") from missing
    _use_one_arena()
    return KafkaAdapter(options)


def _defer_codecs() -> None:
    """Import kafka-python without its codecs. Raises `ModuleNotFoundError`."""
    names = [name for name in _CODECS if name not in sys.modules and find_spec(name)]
    sys.modules.update({name: _Codec(name) for name in names})
    try:
        import_module("kafka.codec")
    finally:
        for name in names:
            del sys.modules[name]


def _use_one_arena() -> None:
    """Have all threads that start from now on allocate from one arena, if the C library is glibc.

    By default each thread has its own, and what the event loop frees of a library's thread stays there: the peak was
    147 to 162 MiB in place of 115 to 117.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_ARENA_MAX, 1)
