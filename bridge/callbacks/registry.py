"""All callback registrations: adds, removes, stores and lists them, and runs a worker for each."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, NamedTuple

from adapters.base import MetadataStore, Transaction
from bridge.allowed_targets import Target
from bridge.callbacks.counters import CallbackCounters
from bridge.callbacks.delivery_worker import DeliveryWorker, Inflate, Post
from bridge.callbacks.registration import (
    BatchOptions,
    DeliveryFailure,
    DeliveryHistory,
    Registration,
    decode_registration,
    metadata_key,
)
from bridge.engine.clock import Clock
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.open_transactions import Decision, TransactionChecks
from bridge.errors import BackendUnavailable, BridgeError, CallbackRefused, Draining
from bridge.identity.principals import Identity
from bridge.wire.cloudevents import Mode

REGISTRATIONS_MAX: Final = 1_000
STATES: Final = ("delivering", "waiting", "paused", "open", "probing", "gone", "refused")

_RETRY_SECONDS: Final = 1.0
"""Wait before the metadata of a backend that is not ready is read again."""
_OFF: Final = "Callbacks are off; to turn them on, name their endpoints in the setting callbacks.targets."

_log = logging.getLogger("bridge.callbacks")


JudgeOwner = Callable[[Registration], str | None]
"""Returns why the owner of a registration may not have it any more; None: it may."""


class Owner(NamedTuple):
    """Who makes, replaces or stops a registration."""

    identity: Identity
    check: Callable[[Registration], None]
    """Raises `NotPermitted` for a registration that the owner may not replace or stop."""


class DeliveryOptions(NamedTuple):
    """How callbacks are checked and sent."""

    check_url: Callable[[str], Target]
    """Parses a URL. Raises `HeaderInvalid` if it is not valid, `CallbackRefused` if the settings do not allow it."""
    post: Post
    inflate: Inflate
    in_flight: int
    """Most POSTs in flight for one registration."""
    lease: int
    """Length of a message's lease, ms; leases are renewed."""
    close: Callable[[], Awaitable[None]]
    """Closes the idle connections, after the last POST has ended."""
    check_transaction: Callable[[Transaction], Awaitable[Decision]] | None = None
    """Asks the producer of a transaction whether to commit it; None: it is not asked."""


class CallbackEntry(NamedTuple):
    """A registration with its history and its worker."""

    registration: Registration
    history: DeliveryHistory
    worker: DeliveryWorker | None
    """None: nothing is delivered."""
    refused: str | None
    """Why the current settings do not allow the registration; None if they do."""
    refused_owner: str | None = None
    """Why its owner may not have it any more; None if it may."""


class CallbackRegistry:
    """All registrations of this bridge. Without `options` callbacks are off: stored registrations are only listed."""

    def __init__(
        self, engine: Engine, options: DeliveryOptions | None = None, judge_owner: JudgeOwner | None = None
    ) -> None:
        self._engine = engine
        self._judge_owner = judge_owner
        self._options = options
        if options is not None and (check := options.check_transaction) is not None:
            engine.transactions.checks = TransactionChecks(options.check_url, check)
        self.counters = CallbackCounters()
        self._metadata_store = engine.metadata_store
        self._entries: dict[SubscriptionKey, CallbackEntry] = {}
        self._changing = asyncio.Lock()
        """Keeps changes of the stored metadata and of the workers in the same order."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._restoring: asyncio.Task[None] | None = None

    @property
    def stored_in(self) -> str:
        """Where registrations are stored; `memory` means that they are lost when this process ends."""
        return "memory" if self._metadata_store is None else self._metadata_store.stored_in

    @property
    def entries(self) -> list[CallbackEntry]:
        """Every registration, by destination and group."""
        return [entry for _, entry in sorted(self._entries.items())]

    def start(self) -> None:
        """Restore the stored registrations as soon as the backend is ready."""
        if self._metadata_store is not None:
            self._restoring = self._run_in_background(self._restore(self._metadata_store))

    async def register(  # noqa: PLR0913 - what a registration says
        self,
        subscription: SubscriptionKey,
        url: str,
        credit: int,
        batch: BatchOptions | None = None,
        mode: Mode | None = None,
        *,
        owner: Owner | None = None,
    ) -> tuple[CallbackEntry, bool]:
        """Deliver a group's messages to `url` from now on: `credit` POSTs at once, or fewer if the settings say so.

        Returns the entry and whether the group had no registration before. Raises `HeaderInvalid` if the URL is not
        valid, `CallbackRefused`, `Draining`, and the errors of `MetadataStore.put`.
        """
        options = self._options
        if options is None:
            raise CallbackRefused(_OFF)
        if self._engine.draining:
            raise Draining("The bridge is stopping and accepts no more callbacks.")
        registration = Registration(subscription, str(options.check_url(url)), credit, batch=batch, mode=mode)
        if owner is not None:
            registration = registration._replace(owner=owner.identity)
        async with self._changing:
            self._check_owner(subscription, owner)
            is_new = subscription not in self._entries
            if is_new and len(self._entries) >= REGISTRATIONS_MAX:
                raise CallbackRefused(f"There are {REGISTRATIONS_MAX} callbacks, the limit; stop one of them first.")
            await self._store(metadata_key(subscription), registration.encode())
            return self._add(registration), is_new

    async def stop(self, subscription: SubscriptionKey, owner: Owner | None = None) -> None:
        """Remove a group's registration. POSTs in flight may still end. Harmless if there is none."""
        async with self._changing:
            self._check_owner(subscription, owner)
            await self._store(metadata_key(subscription), None)
            self._remove(subscription)

    def review(self) -> None:
        """End the deliveries whose owner has lost its token or its permission; begin those that it may have again."""
        for entry in () if self._engine.draining else tuple(self._entries.values()):
            refused = self._refusal_of_owner(entry.registration)
            if (refused is None) == (entry.refused_owner is None):
                continue
            if refused is not None:
                extra = {**entry.registration.subscription._asdict(), "reason": refused}
                _log.warning("a callback ends: its owner may not have it any more", extra=extra)
            self._add(entry.registration)

    async def drain(self, grace: float) -> None:
        """Begin no POST and wait up to `grace` seconds for those in flight. Call it after `Engine.drain`."""
        if self._restoring is not None:
            self._restoring.cancel()
        for worker in self._workers():
            worker.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)

    async def close(self) -> None:
        """End all deliveries at once. Idempotent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._options is not None:
            await self._options.close()

    async def _store(self, key: str, value: str | None) -> None:
        if self._metadata_store is not None:
            await self._metadata_store.put(key, value)

    async def _restore(self, metadata_store: MetadataStore) -> None:
        while True:
            try:
                metadata = metadata_store.all()
                break
            except BackendUnavailable:
                await asyncio.sleep(_RETRY_SECONDS)
        for key, value in metadata.items():
            try:
                registration = decode_registration(key, value)
            except ValueError:
                _log.exception("a stored callback registration cannot be read; register it again")
                continue
            if registration is not None and registration.subscription not in self._entries:
                self._add(registration)

    def _add(self, registration: Registration) -> CallbackEntry:
        """Add a registration, replacing an earlier one of its group, and deliver if the settings allow it."""
        replaced = self._remove(registration.subscription)
        options, history = self._options, replaced.history if replaced else DeliveryHistory()
        if options is not None:
            registration = registration._replace(credit=min(registration.credit, options.in_flight))
        refused_owner = self._refusal_of_owner(registration)
        refused = self._refusal(registration) or refused_owner
        entry = CallbackEntry(registration, history, None, refused, refused_owner)
        if options is not None and entry.refused is None and not registration.gone:
            worker = DeliveryWorker(
                registration,
                self._engine,
                history,
                self.counters,
                post=options.post,
                inflate=options.inflate,
                lease=options.lease,
            )
            entry = entry._replace(worker=worker)
            self._run_in_background(self._run(entry, worker))
        self._entries[registration.subscription] = entry
        self.counters.callbacks = len(self._entries)
        return entry

    def _remove(self, subscription: SubscriptionKey) -> CallbackEntry | None:
        entry = self._entries.pop(subscription, None)
        if entry is not None and entry.worker is not None:
            entry.worker.end()
        self.counters.callbacks = len(self._entries)
        return entry

    def _check_owner(self, subscription: SubscriptionKey, owner: Owner | None) -> None:
        if owner is not None and (entry := self._entries.get(subscription)) is not None:
            owner.check(entry.registration)

    def _refusal_of_owner(self, registration: Registration) -> str | None:
        return None if self._judge_owner is None else self._judge_owner(registration)

    def _refusal(self, registration: Registration) -> str | None:
        """Check a registration against the current settings, which may have changed since it was made."""
        if self._options is None:
            return _OFF
        try:
            self._options.check_url(registration.url)
        except BridgeError as error:
            return error.detail
        return None

    async def _run(self, entry: CallbackEntry, worker: DeliveryWorker) -> None:
        await worker.run()
        if worker.gone:
            async with self._changing:
                await self._mark_gone(entry)

    async def _mark_gone(self, entry: CallbackEntry) -> None:
        """Store that the endpoint is gone, unless the registration was replaced or stopped meanwhile."""
        subscription = entry.registration.subscription
        if self._entries.get(subscription) is not entry:
            return
        gone = entry.registration._replace(gone=True)
        self._entries[subscription] = entry._replace(registration=gone, worker=None)
        _log.warning("the endpoint of a callback answered 410: nothing more is posted", extra=subscription._asdict())
        try:
            await self._store(metadata_key(subscription), gone.encode())
        except BridgeError:
            _log.warning("the 410 of a callback's endpoint was not stored: a restart posts to it again", exc_info=True)

    def _workers(self) -> Iterator[DeliveryWorker]:
        return (entry.worker for entry in self._entries.values() if entry.worker is not None)

    def _run_in_background(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def describe(entry: CallbackEntry, stored_in: str, clock: Clock) -> dict[str, Any]:
    """Return a registration as `GET /v1/callbacks` shows it, without secrets. Times are ms since 1970."""
    registration, history, worker, *_ = entry
    return {
        "source": registration.subscription.source,
        "consumerId": registration.subscription.group,
        "url": mask_query(registration.url),
        "credit": registration.credit,
        **registration.describe_form(),
        "kept": stored_in,
        **_describe_state(entry, clock),
        "inFlight": 0 if worker is None else worker.in_flight,
        "delivered": history.delivered,
        "failed": history.failed,
        "failures": [_describe_failure(failure) for failure in history.failures],
    }


def _describe_state(entry: CallbackEntry, clock: Clock) -> dict[str, Any]:
    if entry.refused is not None:
        return {"state": "refused", "why": entry.refused}
    if entry.worker is None or entry.worker.gone:
        return {"state": "gone", "why": "The endpoint has answered 410."}
    return _describe_worker(entry.worker, clock)


def _describe_worker(worker: DeliveryWorker, clock: Clock) -> dict[str, Any]:
    mono = clock.mono()
    wall_offset = clock.wall() - mono
    if worker.paused_until > mono:
        return {
            "state": "paused",
            "until": wall_offset + worker.paused_until,
            "why": "The endpoint asked for a pause (retry-after).",
        }
    if worker.breaker.until > mono:
        return {
            "state": "open",
            "until": wall_offset + worker.breaker.until,
            "why": "Too many deliveries in a row have failed; one message is tried next.",
        }
    if not worker.breaker.closed:
        return {"state": "probing", "why": "One message tests whether the endpoint is back."}
    if worker.last_error is not None:
        return {"state": "waiting", "why": worker.last_error}
    return {"state": "delivering"}


def _describe_failure(failure: DeliveryFailure) -> dict[str, Any]:
    members: dict[str, Any] = {
        "time": failure.time,
        "messageId": failure.message_id,
        "attempt": failure.attempt,
        "reason": failure.reason,
    }
    return members if failure.status is None else members | {"status": failure.status}


def mask_query(url: str) -> str:
    """Replace the query, which may contain a token."""
    without_query, mark, _ = url.partition("?")
    return f"{without_query}{mark}***" if mark else without_query
