"""Files of a process that dies before one of its changes."""

import threading
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from bridge.mirror.sink.files import Files

NEVER: Final = 1 << 30


class Died(BaseException):
    """Nothing is done after it."""


def raise_died() -> None:
    """Die within a test's own process."""
    raise Died


class Mortal(Files):
    """Files that work for `left` changes; with the next one, and any after it, it dies."""

    def __init__(self, spark: SparkSession, out: str, left: int, die: Callable[[], None] = raise_died) -> None:
        super().__init__(spark, out)
        self._left = left
        self._die = die
        self._lock = threading.Lock()

    def _count(self) -> None:
        with self._lock:
            if self._left <= 0:
                self._die()
            self._left -= 1

    def make(self, folder: str) -> None:
        self._count()
        super().make(folder)

    def write(self, path: str, text: str) -> None:
        self._count()
        super().write(path, text)

    def rename(self, source: str, target: str) -> bool:
        self._count()
        return super().rename(source, target)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)
