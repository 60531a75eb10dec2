"""Acknowledges, releases and extends leases by their receipts, those of several groups in one request."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.entries_and_receipts import Entry, Receipt, ReceiptSigner
from bridge.engine.group import Group
from bridge.errors import BridgeError, Internal, LeaseEnded, ReceiptInvalid

_log = logging.getLogger("bridge.engine")


_Failures = dict[str, BridgeError]
"""By the text of the receipt."""


_Settled = dict[asyncio.Future[None], Mapping[str, Entry]]
"""The entries of each group, given by receipt, by the future of the backend's confirmation."""


class LeaseSettler:
    """Settles leases by their receipts. Each receipt of a call is done, or named in the error."""

    def __init__(self, open_groups: Mapping[int, tuple[SubscriptionKey, Group]]) -> None:
        """`open_groups`: by the number that receipts carry."""
        self._open_groups = open_groups
        self._signer = ReceiptSigner()

    def write(self, group: int, entry: Entry) -> str:
        """Return the receipt of a leased entry of the group with this number."""
        return self._signer.write(Receipt(group, entry.number))

    async def ack(self, receipts: Sequence[str], named: SubscriptionKey | None) -> None:
        """Settle leases; see `Engine.ack`. A group whose backend fails does not stop the others."""
        found, failures = self.find(receipts, named)
        by_group: dict[Group, dict[str, Entry]] = {}
        for text, group, entry in found:
            if entry is not None:
                by_group.setdefault(group, {})[text] = entry
        settled: _Settled = {}
        for group, entries in by_group.items():
            try:
                settled[group.settle(list(entries.values()))] = entries
            except Exception as error:  # noqa: BLE001 - the other groups settle theirs
                failures |= _failures(entries, error)
        if pending := [future for future in settled if not future.done()]:
            await asyncio.wait(pending)
        _raise_failures(receipts, failures | _failures_of(settled))

    def for_each(
        self, receipts: Sequence[str], named: SubscriptionKey | None, action: Callable[[Group, Entry], None]
    ) -> None:
        """Call `action` for the lease of each receipt. Raises `BridgeError`; `LeaseEnded` for a settled one."""
        found, failures = self.find(receipts, named)
        for text, group, entry in found:
            if entry is None or entry.settling:
                failures[text] = LeaseEnded("x-oms-receipt: the message is acknowledged already.")
            else:
                action(group, entry)
        _raise_failures(receipts, failures)

    def find(
        self, receipts: Sequence[str], named: SubscriptionKey | None
    ) -> tuple[list[tuple[str, Group, Entry | None]], _Failures]:
        """Return text, group and entry of each receipt, and the failures; entry None: acknowledged already."""
        found: list[tuple[str, Group, Entry | None]] = []
        failures: _Failures = {}
        for text in dict.fromkeys(receipts):
            try:
                found.append((text, *self._find(text, named)))
            except BridgeError as error:
                failures[text] = error
        return found, failures

    def _find(self, text: str, named: SubscriptionKey | None) -> tuple[Group, Entry | None]:
        receipt = self._signer.read(text)
        key, group = self._open_groups.get(receipt.group, (None, None))
        if group is None:
            raise LeaseEnded("x-oms-receipt: the lease ended because its group was closed or deleted.")
        if named is not None and named != key:
            raise ReceiptInvalid("x-oms-receipt: the receipt belongs to another group than the one named.")
        return group, group.find(receipt.lease)


def _failures_of(settled: _Settled) -> _Failures:
    """Return the receipts whose group could not settle them: all of a group, or none."""
    failures: _Failures = {}
    for future, entries in settled.items():
        if (error := future.exception()) is not None:
            failures |= _failures(entries, error)
    return failures


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
