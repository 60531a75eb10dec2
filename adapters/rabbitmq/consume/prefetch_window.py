"""The prefetch of a partition, bounded in bytes. Pure."""

from typing import Final

GROUP_BYTES: Final = 64 << 20
"""Messages of one group that wait to be fetched, divided among its partitions."""
PARTITION_BYTES: Final = 1 << 20
"""The least share of a partition, in a group with very many."""
REQUEST_BYTES: Final = 256 << 10
"""Bodies that are requested at once of a queue of others: a consumer can take as much."""


class PrefetchWindow:
    """The number of unacknowledged messages that RabbitMQ delivers of a partition, by their size.

    RabbitMQ limits messages and not bytes, and a consumer's limit cannot be changed. So when too many bytes wait, the
    partition gets another channel with a smaller number.
    """

    def __init__(self, most: int, partitions: int) -> None:
        """`most`: the largest number; `partitions` of the group share its bytes."""
        self.count = most
        self._most = most
        self._share = max(GROUP_BYTES // partitions, PARTITION_BYTES)
        self._largest = 0
        """Bytes of the largest message since the last `review`."""

    def arrived(self, size: int, waiting: int) -> bool:
        """Add a message of `size` bytes; returns whether `count` becomes smaller: too many bytes are `waiting`."""
        self._largest = max(self._largest, size, 1)
        if waiting <= self._share or self._fitting >= self.count:
            return False
        self.count = self._fitting
        return True

    def review(self) -> bool:
        """Forget the size of earlier messages; returns whether `count` grows."""
        grows, count = self._largest > 0 and self._fitting > self.count, self._fitting
        self._largest = 0
        if grows:
            self.count = count
        return grows

    def for_request(self, wanted: int) -> int:
        """Return how many of the `wanted` messages to request at once: one until the size of a message is known."""
        return min(wanted, self.count, max(1, REQUEST_BYTES // self._largest) if self._largest else 1)

    def for_consumer(self, fetched: int) -> int:
        """Return the number for a new consumer: more than the `fetched`, which are delivered again first."""
        return min(self._most, max(self.count, fetched + 1))

    @property
    def _fitting(self) -> int:
        return max(1, min(self._most, self._share // max(self._largest, 1)))
