"""How many messages of a partition are delivered at a time: all that are allowed, or fewer if they are large."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.consume.prefetch_window import (
    GROUP_BYTES,
    PARTITION_BYTES,
    REQUEST_BYTES,
    UNACKNOWLEDGED_BYTES,
    PrefetchWindow,
)


@given(st.integers(1, 500), st.integers(1, 100), st.lists(st.integers(0, 8 << 20), max_size=50))
def test_what_waits_is_never_much_more_than_the_share(most: int, partitions: int, sizes: list[int]) -> None:
    """Nothing is fetched meanwhile, and what does not fit any more comes again."""
    window, share, waiting = PrefetchWindow(most, partitions), max(GROUP_BYTES // partitions, PARTITION_BYTES), 0
    for size in sizes:
        before = window.count
        if window.arrived(size, waiting + size):
            assert 1 <= window.count < before
            waiting = 0
        else:
            waiting += size
        assert waiting <= share or window.count == 1 or window.count * size <= share


def test_large_messages_are_few_until_small_ones_have_come() -> None:
    window = PrefetchWindow(256, 8)
    assert not window.arrived(4 << 20, 4 << 20)
    assert window.arrived(4 << 20, 12 << 20)
    assert window.count == 2
    assert [window.for_consumer(fetched) for fetched in (0, 1, 100, 256)] == [2, 2, 101, 256]
    assert [window.for_consumer(fetched) for fetched in (300, 70_000)] == [301, 65_535]
    assert not window.review(), "they were still large"
    assert not window.review(), "nothing has come since"
    window.arrived(200, 200)
    assert window.review()
    assert window.count == 256


def test_small_messages_change_nothing() -> None:
    window = PrefetchWindow(256, 8)
    assert not any(window.arrived(1000, 1000 * number) for number in range(256))
    assert not window.review()
    assert window.count == 256


LOTS = 1 << 40


def test_messages_that_wait_in_the_engine_do_not_count() -> None:
    window = PrefetchWindow(256, 8)
    assert window.more(256, 0, 10, LOTS) == 0, "consumers have them"
    assert window.more(256, 1, 10, LOTS) == 1
    assert window.more(256, 256, 10, LOTS) == 256
    assert window.more(600, 300, 10, LOTS) == 0, "300 others are here"
    assert window.more(600, 500, 10, LOTS) == 500, "as many again"
    assert window.more(65_000, 65_000, 10, LOTS) == 535
    assert window.more(65_535, 65_535, 10, LOTS) == 0


def test_what_is_added_beside_those_that_wait_is_bounded_in_bytes() -> None:
    window = PrefetchWindow(256, 8)
    assert window.more(600, 600, 1000, 10_500) == 10
    assert window.more(600, 600, 1000, 999) == 0
    assert window.more(600, 600, 1000, -1) == 0
    assert window.more(600, 600, 0, 5) == 5
    assert not window.arrived(4 << 20, UNACKNOWLEDGED_BYTES, widened=True)
    assert window.arrived(4 << 20, UNACKNOWLEDGED_BYTES + 1, widened=True)


def test_with_one_message_at_a_time_each_holds_up_its_partition() -> None:
    assert PrefetchWindow(1, 8).more(1, 1, 10, LOTS) == 0


def test_of_a_queue_of_others_as_much_is_requested_as_a_consumer_takes() -> None:
    window = PrefetchWindow(256, 1)
    assert window.for_request(40) == 1
    window.arrived(0, 0)
    assert [window.for_request(wanted) for wanted in (40, 1000, 0, -3)] == [40, 256, 0, -3]
    window.arrived(10_000, 0)
    assert window.for_request(40) == REQUEST_BYTES // 10_000
    window.arrived(REQUEST_BYTES + 1, 0)
    assert window.for_request(40) == 1
