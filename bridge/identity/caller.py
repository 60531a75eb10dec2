"""Who has sent one request, and what it may do: its receipts, its transactions, its callbacks."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from bridge.engine.destination_names import NAME_MAX
from bridge.errors import BridgeError, NotPermitted, ReceiptInvalid
from bridge.identity.principals import Identity
from bridge.identity.refusals import Reason
from bridge.identity.rules import Operation, Resource

if TYPE_CHECKING:
    from bridge.identity.access import Access


class Caller:
    """Who has sent one request."""

    __slots__ = ("access", "checked", "client", "identity", "signed")

    def __init__(self, access: "Access", identity: Identity, client: str, *, signed: str | None = None) -> None:
        self.access = access
        self.identity = identity
        self.signed = signed
        """The only destination that the sender of a webhook may produce to; None: the caller has a token."""
        self.client = client
        """The address, see `client_of`."""
        self.checked: list[tuple[Operation, Resource]] = []
        """What the request needs as long as it is open."""

    def check(self, operation: Operation, destination: str | None, group: str | None = None) -> None:
        """Raise `NotPermitted` unless the caller may do this. What is open ends when that changes."""
        if (refused := self.refusal(operation, destination, group)) is not None:
            raise refused
        self.checked.append((operation, Resource(destination, group)))

    def refusal(self, operation: Operation, destination: str | None, group: str | None = None) -> NotPermitted | None:
        """Return why the caller may not do this, which is counted and logged; None: it may."""
        resource = Resource(destination, group)
        if self.may(operation, resource):
            return None
        self.access.audit.denied(Reason.RULES, self.client, self.identity.principal, f"{operation} on {resource}")
        return not_permitted(operation, resource)

    def check_somewhere(self, operation: Operation) -> None:
        """Raise `NotPermitted` unless the caller may do this with some destination."""
        identity = self.identity
        if not self.access.rules.allow_somewhere(identity.principal, identity.groups, operation):
            self.access.audit.denied(Reason.RULES, self.client, identity.principal, f"{operation} on any destination")
            raise NotPermitted(f"No rule lets you {operation} on any destination.")

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Return whether the caller may do this."""
        if self.signed is not None:
            return operation is Operation.PRODUCE and resource.destination == self.signed
        if len(resource.destination or "") > NAME_MAX:  # no name: decisions about it must not be remembered
            return False
        return self.access.decide(self.access.current(self.identity), operation, resource)

    def owns(self, owner: Identity | None) -> bool:
        """Return whether the caller has made something; None: it was made without identities."""
        return owner is not None and owner.principal == self.identity.principal

    def not_owner(self, operation: Operation, destination: str, group: str) -> NotPermitted:
        """Return the error for something of another principal, which is that of a missing permission; log it."""
        resource = Resource(destination, group)
        what = f"{operation} on {resource}"
        self.access.audit.denied(Reason.OWNER, self.client, self.identity.principal, what)
        return not_permitted(operation, resource)

    def note(self, event: str, what: str) -> None:
        """Log what the caller has done."""
        self.access.audit.did(event, self.client, self.identity.principal, what)

    def watching(self, end: Callable[[BridgeError], None]) -> AbstractContextManager[None]:
        """See `Access.watching`."""
        return self.access.watching(self, end)

    def bind(self, receipt: str) -> str:
        """Return a receipt that only this principal can use."""
        return f"{receipt}-{self.access.receipt_mac(self.identity.principal, receipt)}"

    def unbind(self, receipts: Sequence[str]) -> list[str]:
        """Return receipts as the engine knows them. Raises `ReceiptInvalid` for one of another principal."""
        found = []
        for text in receipts:
            receipt, _, mac = text.rpartition("-")
            expected = self.access.receipt_mac(self.identity.principal, receipt)
            if not secrets.compare_digest(mac.encode(), expected.encode()):
                self.access.audit.denied(Reason.RECEIPT, self.client, self.identity.principal, "settle")
                raise ReceiptInvalid("x-oms-receipt: the receipt was changed, or another principal has leased it.")
            found.append(receipt)
        return found


def not_permitted(operation: Operation, resource: Resource) -> NotPermitted:
    """Return the error of a missing permission."""
    return NotPermitted(f"No rule lets you {operation} on {resource}, or a rule denies it.")
