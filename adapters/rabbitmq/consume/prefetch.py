"""How many messages of a partition RabbitMQ delivers before they are acknowledged, by their size. Pure.

RabbitMQ bounds their number, not their bytes, and takes another number for a new consumer only. So large messages are
noticed when too many bytes of them wait, and the partition gets another channel with a smaller number.
"""

from typing import Final

GROUP_BYTES: Final = 64 << 20
"""Bodies of one group that wait to be fetched, shared by its partitions."""
PARTITION_BYTES: Final = 1 << 20
"""What a partition has at least, also of a group with very many."""


class PrefetchWindow:
    """The prefetch count of one partition."""

    def __init__(self, most: int, partitions: int) -> None:
        """`most` messages are delivered at a time; `partitions` of the group share its bytes."""
        self.count = most
        self._most = most
        self._share = max(GROUP_BYTES // partitions, PARTITION_BYTES)
        self._largest = 0
        """Bytes of the largest body since the count was reviewed."""

    def arrived(self, size: int, waiting: int) -> bool:
        """Note a body of `size` bytes; returns whether it makes `count` smaller, as too many bytes are `waiting`."""
        self._largest = max(self._largest, size)
        if waiting <= self._share or self._fitting >= self.count:
            return False
        self.count = self._fitting
        return True

    def review(self) -> bool:
        """Forget the size of older messages, now and then; returns whether `count` grows."""
        grows, count = self._largest > 0 and self._fitting > self.count, self._fitting
        self._largest = 0
        if grows:
            self.count = count
        return grows

    def beside(self, fetched: int) -> int:
        """Return the number for a new consumer: what was fetched comes again first, and must not keep the rest away."""
        return min(self._most, max(self.count, fetched + 1))

    @property
    def _fitting(self) -> int:
        return max(1, min(self._most, self._share // max(self._largest, 1)))
