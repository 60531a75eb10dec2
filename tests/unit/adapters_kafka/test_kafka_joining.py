"""How a consumer joins again, and what it commits if it stops meanwhile; without a broker."""

import asyncio
from collections.abc import Collection, Sequence
from itertools import chain, repeat
from typing import cast

import pytest

from adapters.kafka.admin import Admin
from adapters.kafka.consume import group_member
from adapters.kafka.consume.group_member import GroupMember
from adapters.kafka.errors import InstanceTaken
from adapters.kafka.mapping import Commit, Commits, Part, Record
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable, BridgeError
from tests.kafka.members import until

ONE = Part("orders", 0)


class FakePoller:
    """A membership that the test completes and ends."""

    made: list["FakePoller"]
    refusal: BridgeError | None = None
    """The error of the last commit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *_: object) -> None:
        self.joined: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.final: Commits | None = None
        self.made.append(self)

    def stop(self, final: Commits) -> None:
        if self.final is None:
            self.final = final
            if self.refusal is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(self.refusal)

    def end(self, error: BridgeError) -> None:
        self.ended.set_exception(error)


class FakeAdmin:
    """Says which instances are in the group, or raises."""

    def __init__(self, *answers: set[str] | BridgeError) -> None:
        self._answers = chain(answers, repeat(set[str]()))

    async def instances(self, *_: object) -> set[str]:
        answer = next(self._answers)
        if isinstance(answer, BridgeError):
            raise answer
        return answer


class Joining(GroupMember):
    """Holds nothing."""

    def __init__(self, admin: FakeAdmin) -> None:
        options = Options(("nowhere",))._replace(instance="bridge-1")
        super().__init__(options, cast("Admin", admin), "group", ["orders"], {})

    async def close(self, commits: Commits) -> None:
        await self._disconnect(commits)

    def assigned(self, part: Part, committed: Commit | None) -> None:
        raise AssertionError(part, committed)

    def arrived(self, records: Sequence[Record]) -> None:
        raise AssertionError(records)

    def _release(self, parts: Collection[Part]) -> None:
        assert not parts


@pytest.fixture
def pollers(monkeypatch: pytest.MonkeyPatch) -> Sequence[FakePoller]:
    FakePoller.made = []
    monkeypatch.setattr(group_member, "Poller", FakePoller)
    monkeypatch.setattr(group_member, "_PAUSES", (0,))
    return FakePoller.made


async def joined(pollers: Sequence[FakePoller], number: int) -> FakePoller:
    """Wait until that many memberships have begun, and complete the last one."""
    await until(lambda: len(pollers) >= number)
    if not pollers[-1].joined.done():
        pollers[-1].joined.set_result(None)
    for _ in range(5):
        await asyncio.sleep(0)
    return pollers[-1]


async def test_it_joins_again_when_its_membership_has_ended(pollers: Sequence[FakePoller]) -> None:
    one = Joining(FakeAdmin())
    one.join_soon()
    (await joined(pollers, 1)).end(BackendUnavailable("a defect"))
    await asyncio.sleep(0)
    assert one.not_ready_reason == "a defect"
    await joined(pollers, 2)
    assert one.not_ready_reason is None
    await one.close({})


async def test_it_does_not_take_its_place_back_from_another_bridge(
    pollers: Sequence[FakePoller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if Kafka does not answer in between whether the other bridge is still there."""
    asked: list[int] = []
    admin = FakeAdmin(BackendUnavailable("no answer"), {"bridge-1.orders"}, {"bridge-1.orders"}, set())
    ask = admin.instances

    async def instances(*_: object) -> set[str]:
        asked.append(len(pollers))
        return await ask()

    monkeypatch.setattr(admin, "instances", instances)
    one = Joining(admin)
    one.join_soon()
    (await joined(pollers, 1)).end(InstanceTaken("group"))
    await joined(pollers, 2)
    assert asked == [1, 1, 1, 1]
    assert one.not_ready_reason is None
    await one.close({})


async def test_what_is_settled_during_a_join_is_committed_when_it_stops(pollers: Sequence[FakePoller]) -> None:
    """The forwarder of delayed messages moves records as soon as they arrive: without it they would be doubled."""
    one = Joining(FakeAdmin())
    one.join_soon()
    await asyncio.sleep(0)
    await one.close({ONE: Commit(7, "")})
    assert [each.final for each in pollers] == [{ONE: Commit(7, "")}]


@pytest.mark.usefixtures("pollers")
async def test_it_says_so_if_that_commit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Joining(FakeAdmin())
    one.join_soon()
    await asyncio.sleep(0)
    monkeypatch.setattr(FakePoller, "refusal", BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable, match="away"):
        await one.close({ONE: Commit(7, "")})
