"""What tests give to `subscribe`: a backend in one process has nobody to give partitions to."""

from collections.abc import Collection, Sequence

from adapters.base import Delivery


def alone(partitions: Collection[int]) -> Sequence[Delivery]:
    """Fail: nothing may be taken back."""
    raise AssertionError(f"revoked {partitions}")
