"""What a bridge has to know, and to be told, of each of its groups."""

from typing import Protocol

from adapters.rabbitmq.roster import State


class Member(Protocol):
    """The part of this bridge in one group."""

    topic: str

    @property
    def state(self) -> State:
        """What it says of itself."""

    def heard(self, peer: str, state: State) -> bool:
        """Note what a bridge says; returns whether that one was unknown until now."""

    def knows(self, peer: str) -> bool:
        """Whether a bridge is in the group."""

    def vanished(self, peer: str) -> None:
        """Note that a bridge is gone."""

    def decide(self) -> None:
        """Compute the share anew."""

    def lost(self, *, connection: bool) -> None:
        """Note that this bridge's name is gone, or with the connection all that was consumed."""

    async def again(self, me: str) -> None:
        """Take part under a new name. Raises `BackendUnavailable`."""

    async def stand_in(self) -> None:
        """Take as well what nobody consumes any more. Raises `BackendUnavailable` or `Refused`."""
