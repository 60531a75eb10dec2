"""The `revoked` function of tests: a backend in one process revokes no partitions."""

from collections.abc import Collection, Sequence

from adapters.base import Delivery


def alone(partitions: Collection[int]) -> Sequence[Delivery]:
    """Fail: nothing may be taken back."""
    raise AssertionError(f"revoked {partitions}")
