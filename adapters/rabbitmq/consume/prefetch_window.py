"""The prefetch of a partition, bounded in bytes. Pure."""

from typing import Final

GROUP_BYTES: Final = 64 << 20
"""Bodies of one group that wait to be fetched, divided among its partitions."""
PARTITION_BYTES: Final = 1 << 20
"""The least share of a partition, in a group with very many."""

_MOST: Final = 65535
"""AMQP's largest number for a consumer."""


class PrefetchWindow:
    """The number of unacknowledged messages that RabbitMQ delivers of a partition, by their size.

    RabbitMQ limits messages and not bytes, and a consumer's limit cannot be changed. So when too many bytes wait, the
    partition gets another channel with a smaller number. Messages that wait in the engine for their key or for a time
    do not count: the partition gets another channel with a larger number.
    """

    def __init__(self, most: int, partitions: int) -> None:
        """`most`: the largest number; `partitions` of the group share its bytes."""
        self.count = most
        self._most = most
        self._share = max(GROUP_BYTES // partitions, PARTITION_BYTES)
        self._largest = 0
        """Bytes of the largest body since the last `review`."""

    def arrived(self, size: int, waiting: int, prefetch: int) -> bool:
        """Add a body of `size` bytes; returns whether a consumer's `prefetch` is too large for the bytes `waiting`."""
        self._largest = max(self._largest, size)
        if waiting <= self._share or self._fitting >= prefetch:
            return False
        self.count = min(self.count, self._fitting)
        return True

    def more(self, held: int, waiting: int) -> int:
        """Return how many more messages than those that are held may come, as some of them wait in the engine.

        0: enough do not. As many again as wait, so that few channels are necessary. With a largest number of 1, each
        message holds up its partition.
        """
        free = self.count - (held - waiting)
        if waiting <= 0 or free <= 0 or self._most == 1 or held >= _MOST:
            return 0
        return max(free, min(waiting, self._share // max(self._largest, 1)))

    def review(self) -> bool:
        """Forget the size of earlier messages; returns whether `count` grows."""
        grows, count = self._largest > 0 and self._fitting > self.count, self._fitting
        self._largest = 0
        if grows:
            self.count = count
        return grows

    def for_consumer(self, fetched: int, waiting: int) -> int:
        """Return the number for a new consumer: more than the `fetched`, which are delivered again first.

        `waiting`: of those, waiting in the engine.
        """
        more = self.more(fetched, waiting)
        most = self._most if fetched <= self._most and not more else _MOST
        return min(most, max(self.count, fetched + max(more, 1)))

    @property
    def _fitting(self) -> int:
        return max(1, min(self._most, self._share // max(self._largest, 1)))
