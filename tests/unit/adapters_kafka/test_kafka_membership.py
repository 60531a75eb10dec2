"""What `Membership` reports and commits when partitions come, go, and go while the member leaves."""

import asyncio
from uuid import uuid4

import pytest
from kafka import TopicPartition, errors

from adapters.kafka.consume.membership import Membership
from adapters.kafka.mapping import Commit, Part
from adapters.kafka.thread_to_loop import ThreadToLoop
from bridge.errors import OutcomeUnknown
from tests.unit.adapters_kafka.fake_library import FakeLibrary, Owner, run

ONE, OTHER = Part("orders", 0), Part("orders", 1)
PLACES = [TopicPartition(*ONE), TopicPartition(*OTHER)]


class Bench:
    """A membership that holds both partitions."""

    def __init__(self) -> None:
        self.library, self.owner = FakeLibrary(), Owner()
        self.to_loop = ThreadToLoop(asyncio.get_running_loop())
        self.library.before_answer = self.to_loop.drain
        self.membership = Membership(self.library, "group", self.owner, self.to_loop)
        run(self.membership.on_partitions_assigned(PLACES))
        self.to_loop.drain()
        assert self.owner.held == {ONE, OTHER}


async def test_what_is_revoked_is_committed() -> None:
    bench = Bench()
    run(bench.membership.on_partitions_revoked(PLACES[:1]))
    assert bench.library.written == [{PLACES[0]: 3}]
    assert bench.owner.held == {OTHER}


async def test_the_last_commit_is_written_when_the_member_leaves() -> None:
    bench = Bench()
    bench.membership.close({ONE: Commit(5, "")})
    run(bench.membership.commit_final())
    assert bench.library.written == [{PLACES[0]: 5}]


async def test_what_is_revoked_while_the_member_leaves_gets_its_last_commit() -> None:
    bench = Bench()

    def leave_and_answer() -> None:  # the rebalance has begun, and the bridge stops before it is asked
        bench.membership.close({ONE: Commit(5, ""), OTHER: Commit(6, "")})
        bench.to_loop.drain()

    bench.library.before_answer = leave_and_answer
    run(bench.membership.on_partitions_revoked(PLACES[:1]))
    run(bench.membership.commit_final())
    assert bench.library.written == [{PLACES[0]: 5}, {PLACES[1]: 6}]


async def test_a_last_commit_that_is_not_written_is_no_success(subtests: pytest.Subtests) -> None:
    """Acknowledgements wait for it, and must not be confirmed."""
    with subtests.test("lost"):
        bench = Bench()
        bench.membership.close({ONE: Commit(5, ""), OTHER: Commit(6, "")})
        run(bench.membership.on_partitions_lost(PLACES[:1]))
        with pytest.raises(OutcomeUnknown):
            run(bench.membership.commit_final())
        assert bench.library.written == [{PLACES[1]: 6}]
    with subtests.test("lost and assigned again"):  # another bridge may have gone further meanwhile
        bench = Bench()
        bench.membership.close({ONE: Commit(5, "")})
        run(bench.membership.on_partitions_lost(PLACES[:1]))
        run(bench.membership.on_partitions_assigned(PLACES[:1]))
        with pytest.raises(OutcomeUnknown):
            run(bench.membership.commit_final())
        assert not bench.library.written
    with subtests.test("revoked, and refused"):
        bench = Bench()
        bench.membership.close({ONE: Commit(5, "")})
        bench.library.refusal = errors.NotCoordinatorError()
        run(bench.membership.on_partitions_revoked(PLACES[:1]))
        bench.library.refusal = None
        with pytest.raises(OutcomeUnknown):
            run(bench.membership.commit_final())


async def test_the_last_commit_of_a_topic_that_was_created_again_is_not_written() -> None:
    """Its group would begin at the position of the old topic, and skip messages."""
    bench = Bench()
    bench.membership.close({ONE: Commit(5, "")})
    bench.library.ids["orders"] = uuid4()
    run(bench.membership.commit_final())
    assert not bench.library.written


async def test_a_membership_that_breaks_takes_all_partitions_along(subtests: pytest.Subtests) -> None:
    """Also those that went a moment ago, and that the busy event loop has not been told of."""
    for method in "on_partitions_lost", "on_partitions_revoked":
        with subtests.test(method):
            bench = Bench()
            bench.library.before_answer = lambda: None  # the event loop is busy
            run(getattr(bench.membership, method)(PLACES[:1]))
            bench.membership.break_off()
            bench.to_loop.drain()
            assert not bench.owner.held
            assert sorted(bench.owner.events[2:]) == ["lost 0", "lost 1"]


async def test_partitions_whose_offsets_cannot_be_read_are_paused_until_they_can() -> None:
    library, owner = FakeLibrary(), Owner()
    to_loop = ThreadToLoop(asyncio.get_running_loop())
    membership = Membership(library, "group", owner, to_loop)
    library.unreadable = errors.NotCoordinatorError()
    run(membership.on_partitions_assigned(PLACES))
    to_loop.drain()
    assert not owner.held
    assert library.is_paused == set(PLACES)
    run(membership.announce())
    to_loop.drain()
    assert owner.held == {ONE, OTHER}
    assert not library.is_paused
