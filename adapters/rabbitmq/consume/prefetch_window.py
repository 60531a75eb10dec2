"""The prefetch of a partition, bounded in bytes. Pure."""

from typing import Final

UNACKNOWLEDGED_BYTES: Final = 256 << 20
"""Messages of a group that RabbitMQ has delivered and that are not acknowledged, above which none are added to those
that wait in the engine. After a restart all of them are here for a moment."""
GROUP_BYTES: Final = 64 << 20
"""Messages of one group that wait to be fetched, divided among its partitions."""
PARTITION_BYTES: Final = 1 << 20
"""The least share of a partition, in a group with very many."""
REQUEST_BYTES: Final = 256 << 10
"""Bodies that are requested at once of a queue of others: a consumer can take as much."""

PREFETCH_MAX: Final = 65535
"""AMQP's largest number for a consumer."""


class PrefetchWindow:
    """The number of unacknowledged messages that RabbitMQ delivers of a partition, by their size.

    RabbitMQ limits messages and not bytes, and a consumer's limit cannot be changed. So when too many bytes wait, the
    partition gets another channel with a smaller number. Messages that wait in the engine for their key or for a time
    do not count: for others the partition gets another consumer beside them.
    """

    def __init__(self, most: int, partitions: int) -> None:
        """`most`: the largest number; `partitions` of the group share its bytes."""
        self.count = most
        self._most = most
        self._share = max(GROUP_BYTES // partitions, PARTITION_BYTES)
        self._largest = 0
        """Bytes of the largest message since the last `review`."""

    def arrived(self, size: int, waiting: int, *, widened: bool = False) -> bool:
        """Add a message of `size` bytes; returns whether `count` becomes smaller: too many bytes are `waiting`.

        `widened`: whether more than `count` may come, beside messages that wait in the engine.
        """
        self._largest = max(self._largest, size, 1)
        if waiting <= (UNACKNOWLEDGED_BYTES if widened else self._share) or self._fitting >= self.count:
            return False
        self.count = self._fitting
        return True

    def more(self, held: int, waiting: int, size: int, free_bytes: int) -> int:
        """Return the number for a consumer beside the messages that are held, as some of them wait in the engine.

        0: enough of them do not. As many again as wait, so that few consumers are necessary. `size`: the bytes of a
        message, of which there may be `free_bytes`. With a largest number of 1, each message holds up its partition.
        """
        free = self.count - (held - waiting)
        if waiting <= 0 or free <= 0 or self._most == 1:
            return 0
        return max(0, min(max(free, waiting), PREFETCH_MAX - held, free_bytes // max(size, 1)))

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
        most = self._most if fetched <= self._most else PREFETCH_MAX
        return min(most, max(self.count, fetched + 1))

    @property
    def _fitting(self) -> int:
        return max(1, min(self._most, self._share // max(self._largest, 1)))
