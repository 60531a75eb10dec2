"""Acknowledges, releases and extends leases by their receipts, those of several groups in one request."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.entries_and_receipts import Entry, ReceiptSigner
from bridge.engine.group import Group
from bridge.engine.observer import End, Observer
from bridge.errors import BridgeError, Internal, LeaseEnded, ReceiptInvalid

_log = logging.getLogger("bridge.engine")


_Failures = dict[str, BridgeError]
"""By the text of the receipt."""


class _Found(NamedTuple):
    """What a receipt stands for."""

    text: str
    key: SubscriptionKey
    group: Group
    entry: Entry | None
    """None: acknowledged already."""


class LeaseSettler:
    """Settles leases by their receipts. Each receipt of a call is done, or named in the error."""

    def __init__(
        self, open_groups: Mapping[int, tuple[SubscriptionKey, Group]], observer: Observer | None = None
    ) -> None:
        """`open_groups`: by the number that receipts carry."""
        self._open_groups = open_groups
        self._observer = observer
        self.signer = ReceiptSigner()

    async def ack(self, receipts: Sequence[str], named: SubscriptionKey | None) -> None:
        """Settle leases; one that was acknowledged before is settled already. Raises `BridgeError`.

        Returns when the backend has recorded it. If `named` is given, all receipts must belong to that group. A group
        whose backend fails does not stop the others.
        """
        found, failures = self._find_all(receipts, named)
        ends = {} if self._observer is None else self._ends(self._observer, "ack", found)
        try:
            failures |= await self._settle(found)
        except BaseException as error:
            for end in ends.values():
                end(error)
            raise
        for text, end in ends.items():
            end(failures.get(text))
        if failures:
            _raise_failures(receipts, failures)

    def nack(self, receipts: Sequence[str], delay: int, named: SubscriptionKey | None) -> None:
        """Release leases; each message is ready again after `delay` ms. Raises `BridgeError`."""
        found, failures = self._find_all(receipts, named)
        ends = {} if self._observer is None else self._ends(self._observer, "nack", found)
        try:
            self._for_each(found, failures, lambda group, entry: group.release(entry, delay))
            _raise_failures(receipts, failures)
        finally:
            for end in ends.values():  # an error is about other receipts: these had a lease
                end(None)

    def extend(self, receipts: Sequence[str], duration: int, named: SubscriptionKey | None) -> None:
        """Make leases end `duration` ms from now. Raises `BridgeError`."""
        found, failures = self._find_all(receipts, named)
        self._for_each(found, failures, lambda group, entry: group.extend(entry, duration))
        _raise_failures(receipts, failures)

    @staticmethod
    async def _settle(found: list[_Found]) -> _Failures:
        """Settle what receipts stand for, and return the failures: all receipts of a group, or none."""
        failures: _Failures = {}
        by_group: dict[Group, dict[str, Entry]] = {}
        for text, _, group, entry in found:
            if entry is not None:
                by_group.setdefault(group, {})[text] = entry
        settled: dict[asyncio.Future[None], dict[str, Entry]] = {}
        for group, entries in by_group.items():
            try:
                settled[group.settle(list(entries.values()))] = entries
            except Exception as error:  # noqa: BLE001 - the other groups settle theirs
                failures |= _failures(entries, error)
        if pending := [future for future in settled if not future.done()]:
            await asyncio.wait(pending)
        for future, entries in settled.items():
            if (failure := future.exception()) is not None:
                failures |= _failures(entries, failure)
        return failures

    @staticmethod
    def _for_each(found: list[_Found], failures: _Failures, action: Callable[[Group, Entry], None]) -> None:
        """Call `action` for the lease of each receipt; one that is settled is a failure: `LeaseEnded`."""
        for text, _, group, entry in found:
            if entry is None or entry.settling:
                failures[text] = LeaseEnded("x-oms-receipt: the message is acknowledged already.")
            else:
                action(group, entry)

    @staticmethod
    def _ends(observer: Observer, how: Literal["ack", "nack"], found: list[_Found]) -> dict[str, End]:
        """Tell the observer that leases are being settled. Returns, by receipt, what to call when each is."""
        return {
            text: observer.settling(how, key, entry.message)
            for text, key, _, entry in found
            if entry is not None and not entry.settling
        }

    def _find_all(self, receipts: Sequence[str], named: SubscriptionKey | None) -> tuple[list[_Found], _Failures]:
        """Return what each receipt stands for, and the failures."""
        found: list[_Found] = []
        failures: _Failures = {}
        for text in dict.fromkeys(receipts):
            try:
                found.append(self._find(text, named))
            except BridgeError as error:
                failures[text] = error
        return found, failures

    def _find(self, text: str, named: SubscriptionKey | None) -> _Found:
        receipt = self.signer.read(text)
        opened = self._open_groups.get(receipt.group)
        if opened is None:
            raise LeaseEnded("x-oms-receipt: the lease ended because its group was closed or deleted.")
        key, group = opened
        if named is not None and named != key:
            raise ReceiptInvalid("x-oms-receipt: the receipt belongs to another group than the one named.")
        return _Found(text, key, group, group.find(receipt.lease))


def _failures(receipts: Collection[str], error: BaseException) -> _Failures:
    if not isinstance(error, BridgeError):
        _log.error("internal error: a group could not settle its leases", exc_info=error)
        error = Internal("Internal error in the bridge; its log has the details.")
    return dict.fromkeys(receipts, error)


def _raise_failures(receipts: Sequence[str], failures: _Failures) -> None:
    """Raise the first failure, if any; with several receipts its detail lists the ones that failed."""
    if not failures:
        return
    error = next(iter(failures.values()))
    if len(receipts) > 1:
        failed = ", ".join(text[:80].encode("unicode_escape").decode("ascii") for text in failures)
        raise type(error)(f"{error.detail} Of {len(receipts)} receipts these failed, the others are done: {failed}.")
    raise error
