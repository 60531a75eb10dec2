"""Who wants callbacks: registers, replaces and stops them, keeps them over a restart, and runs their couriers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Final, NamedTuple

from adapters.base import Notebook
from bridge.callbacks.courier import Courier, Post
from bridge.callbacks.registration import History, Registration, decode, key_of
from bridge.callbacks.targets import Targets
from bridge.engine.engine import Engine, GroupName
from bridge.errors import BackendUnavailable, BridgeError, CallbackRefused, Draining

REGISTRATIONS_MAX: Final = 1_000

_AGAIN: Final = 1.0
"""Seconds before a backend that has not started is asked again for what it keeps."""
_OFF: Final = "Callbacks are off; naming their endpoints in the setting callbacks.targets turns them on."

_log = logging.getLogger("bridge.callbacks")


class Sending(NamedTuple):
    """What it takes to send callbacks."""

    targets: Targets
    post: Post
    in_flight: int
    """Most POSTs in flight for one registration."""
    lease: int
    """How long messages are leased at a time, ms; leases are renewed."""
    close: Callable[[], Awaitable[None]]
    """Lets go of the connections, once the last POST has ended."""


class Entry(NamedTuple):
    """One registration and what is done for it."""

    registration: Registration
    history: History
    courier: Courier | None
    """None: nothing is delivered."""
    refused: str | None
    """Why today's settings do not allow it."""


class Callbacks:
    """Every registration of this bridge. Without a `Sending` callbacks are off: none is taken, kept ones stay."""

    def __init__(self, engine: Engine, sending: Sending | None = None) -> None:
        self._engine = engine
        self._sending = sending
        self._notebook = engine.adapter if isinstance(engine.adapter, Notebook) else None
        self._entries: dict[GroupName, Entry] = {}
        self._changing = asyncio.Lock()
        """What is kept and what is done must change in the same order."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._restoring: asyncio.Task[None] | None = None

    @property
    def kept_in(self) -> str:
        """Where registrations are kept: `memory` is this process, and gone with it."""
        return "memory" if self._notebook is None else self._notebook.kept_in

    @property
    def entries(self) -> list[Entry]:
        """Every registration, by name."""
        return [entry for _, entry in sorted(self._entries.items())]

    def start(self) -> None:
        """Bring back what was kept, as soon as the backend is ready."""
        if self._notebook is not None:
            self._restoring = self._background(self._restore(self._notebook))

    async def register(self, name: GroupName, url: str, credit: int) -> tuple[Entry, bool]:
        """Deliver a group's messages to `url` from now on, `credit` at a time or as many as the settings allow.

        Returns also whether the group had no registration. Raises `CallbackRefused`, `HeaderInvalid` for a bad URL,
        `Draining`, and what `Notebook.keep` raises.
        """
        sending = self._sending
        if sending is None:
            raise CallbackRefused(_OFF)
        if self._engine.draining:
            raise Draining("The bridge is stopping and takes no more callbacks.")
        registration = Registration(name, str(sending.targets.check(url)), credit)
        async with self._changing:
            new = name not in self._entries
            if new and len(self._entries) >= REGISTRATIONS_MAX:
                raise CallbackRefused(f"There are {REGISTRATIONS_MAX} callbacks; stop one of them first.")
            await self._keep(key_of(name), registration.encode())
            return self._place(registration), new

    async def stop(self, name: GroupName) -> None:
        """Deliver no more to a group's URL, but for the POSTs in flight. Harmless where there is none."""
        async with self._changing:
            await self._keep(key_of(name), None)
            self._forget(name)

    async def drain(self, grace: float) -> None:
        """Take nothing more and wait for the POSTs in flight, `grace` seconds at most. The engine drains already."""
        if self._restoring is not None:
            self._restoring.cancel()
        for courier in self._couriers():
            courier.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)

    async def close(self) -> None:
        """End everything at once. Idempotent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._sending is not None:
            await self._sending.close()

    async def _keep(self, key: str, value: str | None) -> None:
        if self._notebook is not None:
            await self._notebook.keep(key, value)

    async def _restore(self, notebook: Notebook) -> None:
        while True:
            try:
                notes = notebook.kept()
                break
            except BackendUnavailable:
                await asyncio.sleep(_AGAIN)
        for key, value in notes.items():
            try:
                registration = decode(key, value)
            except ValueError:
                _log.exception("a registration cannot be read back; it has to be made again")
                continue
            if registration is not None and registration.name not in self._entries:
                self._place(registration)

    def _place(self, registration: Registration) -> Entry:
        """Take a registration in, in the place of an earlier one of its group, and deliver if that is allowed."""
        earlier = self._forget(registration.name)
        sending, history = self._sending, earlier.history if earlier else History()
        if sending is not None:
            registration = registration._replace(credit=min(registration.credit, sending.in_flight))
        entry = Entry(registration, history, None, self._refusal(registration))
        if sending is not None and entry.refused is None and not registration.gone:
            courier = Courier(registration, self._engine, sending.post, sending.lease, history)
            entry = entry._replace(courier=courier)
            self._background(self._run(entry, courier))
        self._entries[registration.name] = entry
        self._engine.counters.callbacks = len(self._entries)
        return entry

    def _forget(self, name: GroupName) -> Entry | None:
        entry = self._entries.pop(name, None)
        if entry is not None and entry.courier is not None:
            entry.courier.end()
        self._engine.counters.callbacks = len(self._entries)
        return entry

    def _refusal(self, registration: Registration) -> str | None:
        """Judge a registration by today's settings; they may be others than when it was made."""
        if self._sending is None:
            return _OFF
        try:
            self._sending.targets.check(registration.url)
        except BridgeError as error:
            return error.detail
        return None

    async def _run(self, entry: Entry, courier: Courier) -> None:
        await courier.run()
        if courier.gone:
            async with self._changing:
                await self._end(entry)

    async def _end(self, entry: Entry) -> None:
        """Note for good that the endpoint is gone, unless it was replaced or stopped meanwhile."""
        name = entry.registration.name
        if self._entries.get(name) is not entry:
            return
        gone = entry.registration._replace(gone=True)
        self._entries[name] = entry._replace(registration=gone, courier=None)
        _log.warning("a callback is stopped: its endpoint is gone", extra=name._asdict())
        try:
            await self._keep(key_of(name), gone.encode())
        except BridgeError:
            _log.warning("that it is gone is not kept; a restart will ask it again", exc_info=True)

    def _couriers(self) -> Iterator[Courier]:
        return (entry.courier for entry in self._entries.values() if entry.courier is not None)

    def _background(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
