"""Finds who a request is from, decides what it may do, and ends what is open when that changes."""

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from bridge.engine.client_limits import client_of
from bridge.engine.clock import BackgroundTasks, Clock
from bridge.errors import BridgeError, IdentityUnavailable, Unauthenticated
from bridge.identity.audit import Audit
from bridge.identity.caller import Caller, not_permitted
from bridge.identity.key_sets import FetchedKeys, KeySource
from bridge.identity.principals import LEEWAY, Identity, Revoked, StaticTokens
from bridge.identity.refusals import Reason, TokenRefused
from bridge.identity.rules import Operation, Resource, Rules
from bridge.identity.watched_files import WatchedFile

if TYPE_CHECKING:
    from jwt import PyJWK

    from bridge.identity.jwt_tokens import Issuer, Unverified

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
"""Of RFC 9728."""

_TICK: Final = 1.0
"""Seconds between two looks at files, keys, and what is open."""
_JUDGED_AT_ONCE: Final = 500
"""Open requests that are judged in one step, in about a millisecond."""
_REMEMBERED: Final = 10_000
"""Valid JWTs that are remembered, by their hashes."""
_RECEIPT_MAC: Final = 8
_KEY_BYTES: Final = 16
_BEARER: Final = b"bearer "
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+")

WEBHOOK: Final = "webhook"
"""Begins the principal of a request that its signature proves, as the name of an issuer does."""


class AccessFiles(NamedTuple):
    """The files of the settings; None: not configured."""

    rules: WatchedFile[Rules]
    tokens: WatchedFile[StaticTokens] | None = None
    revoked: WatchedFile[Revoked] | None = None
    keys: Sequence[WatchedFile[Any]] = ()

    def all(self) -> list[WatchedFile[Any]]:
        """Return every file."""
        every: tuple[WatchedFile[Any] | None, ...] = (self.rules, self.tokens, self.revoked, *self.keys)
        return [file for file in every if file is not None]


class Access:
    """All principals of one bridge and what they may do. `resource`: the URL of the bridge, None: that of the request.

    `signed`: destinations whose requests have a signature instead of a token.
    """

    def __init__(  # noqa: PLR0913 - what the settings say, built in one place
        self,
        files: AccessFiles,
        issuers: "Mapping[str, tuple[Issuer, KeySource]]",
        clock: Clock,
        *,
        signed: Collection[str] = (),
        resource: str | None = None,
        scheme: str = "http",
        producer_property: str | None = None,
    ) -> None:
        self.audit = Audit()
        self.producer_property = producer_property
        """The property that names the principal of a message's producer; None: none does."""
        self.each_second: list[Callable[[], None]] = []
        """Called after files were read again."""
        self.signed = frozenset(signed)
        self._files = files
        self._issuers = issuers
        self._clock = clock
        self._resource = resource
        self._scheme = scheme
        self._remembered: OrderedDict[bytes, Identity] = OrderedDict()
        self._open: set[_Open] = set()
        self._background = BackgroundTasks()
        self._receipts = hashlib.blake2b(key=secrets.token_bytes(_KEY_BYTES), digest_size=_RECEIPT_MAC)

    @property
    def rules(self) -> Rules:
        """The rules that hold now."""
        return self._files.rules.content

    @property
    def refused_files(self) -> int:
        """Number of changed files that cannot be used."""
        return sum(file.refused for file in self._files.all())

    def start(self) -> None:
        """Fetch keys, and begin to watch."""
        self._background.start(self._watch)

    async def close(self) -> None:
        """End the watch."""
        await self._background.close()
        for _, source in self._issuers.values():
            if isinstance(source, FetchedKeys):
                await source.close()

    async def identify(self, headers: Mapping[bytes, bytes], peer: str) -> Caller:
        """Return who sends a request with these headers. Raises `Unauthenticated`, `IdentityUnavailable`."""
        raw = headers.get(b"authorization")
        client = client_of(peer)
        try:
            identity = await self._identity(raw)
            self._check_current(identity, LEEWAY)
        except TokenRefused as error:
            self._refuse_token(error, client, headers)
        self.audit.used(identity, client)
        return Caller(self, identity, client)

    def of_webhook(self, destination: str, peer: str) -> Caller:
        """Return the sender of a request to one of `signed`, whose signature is checked where its body is read."""
        return Caller(self, Identity(f"{WEBHOOK}:{destination}"), client_of(peer), signed=destination)

    def decide(self, identity: Identity, operation: Operation, resource: Resource) -> bool:
        """Return whether an identity may do something."""
        return self.rules.decide(identity.principal, identity.groups, operation, resource).allowed

    def lost(self, identity: Identity, checked: "Collection[tuple[Operation, Resource]]" = ()) -> BridgeError | None:
        """Return why what is open for an identity must end; None: it need not."""
        try:
            self._check_current(identity, 0)
        except TokenRefused as error:
            return Unauthenticated(f"authorization: {error}.", challenge=self._challenge({}, error))
        current = self.current(identity)
        for operation, resource in checked:
            if not self.decide(current, operation, resource):
                return not_permitted(operation, resource)
        return None

    def judge_owner(self, owner: Identity | None, operation: Operation, resource: Resource) -> str | None:
        """Return why the owner of something may not have it any more; None: it may."""
        if owner is None:
            return "It was made without an identity: register it again."
        error = self.lost(owner, ((operation, resource),))
        return None if error is None else error.detail

    @contextmanager
    def watching(self, caller: Caller, end: Callable[[BridgeError], None]) -> Iterator[None]:
        """Call `end`, every second, while the caller has lost its token or a permission that it needed."""
        opened = _Open(caller, end)
        self._open.add(opened)
        try:
            yield
        finally:
            self._open.discard(opened)

    def metadata(self, headers: Mapping[bytes, bytes]) -> dict[str, object]:
        """Return the document of RFC 9728."""
        document: dict[str, object] = {
            "resource": self._origin(headers) or "",
            "bearer_methods_supported": ["header"],
        }
        if self._issuers:
            document["authorization_servers"] = list(self._issuers)
        return document

    def receipt_mac(self, principal: str, receipt: str) -> str:
        """Return what binds a receipt to a principal."""
        mac = self._receipts.copy()
        mac.update(f"{principal}\0{receipt}".encode())
        return mac.hexdigest()

    async def _identity(self, raw: bytes | None) -> Identity:
        """Raises `TokenRefused`, `IdentityUnavailable`."""
        if raw is None:
            raise TokenRefused(Reason.MISSING, "send a token as `Bearer TOKEN`")
        if raw[: len(_BEARER)].lower() != _BEARER or not raw.isascii():
            raise TokenRefused(Reason.MALFORMED, "`Bearer TOKEN` is expected")
        if (remembered := self._remembered.get(digest := hashlib.sha256(raw).digest())) is not None:
            return remembered
        token = raw[len(_BEARER) :].decode("ascii").strip()
        if self._files.tokens is not None and (known := self._files.tokens.content.find(token)) is not None:
            return known
        if not self._issuers or "." not in token:
            raise TokenRefused(Reason.UNKNOWN, "the token is not known")
        identity = await self._verified(token)
        self._remembered[digest] = identity
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return identity

    async def _verified(self, token: str) -> Identity:
        from bridge.identity import jwt_tokens  # noqa: PLC0415 - PyJWT is an extra

        unverified = jwt_tokens.read_unverified(token)
        issuer, source = self._issuers.get(unverified.issuer, (None, None))
        if issuer is None or source is None:
            raise TokenRefused(Reason.ISSUER, "the issuer of the token is not known")
        if unverified.algorithm not in issuer.algorithms:
            raise TokenRefused(Reason.ALGORITHM, "the algorithm of the token is not allowed")
        key = _find(source, unverified)
        if key is None:
            await source.renew()
            key = _find(source, unverified)
        if source.keys is None:
            raise IdentityUnavailable("The keys of the token's issuer could not be fetched yet.")
        if key is None:
            raise TokenRefused(Reason.KEY, "the key of the token is not known")
        return jwt_tokens.verify(token, issuer, key, unverified.algorithm, self._clock.wall())

    def _check_current(self, identity: Identity, leeway: int) -> None:
        """Raise `TokenRefused` if a token that was valid is not valid any more."""
        if identity.expires is not None and self._clock.wall() >= identity.expires + leeway:
            raise TokenRefused(Reason.EXPIRED, "the token has expired")
        if self._files.revoked is not None and self._files.revoked.content.has(identity):
            raise TokenRefused(Reason.REVOKED, "the token is revoked")
        if identity.digest is not None and self._static(identity.digest) is None:
            raise TokenRefused(Reason.UNKNOWN, "the token is not known any more")

    def current(self, identity: Identity) -> Identity:
        """Return the identity with the groups that its static token has now."""
        return identity if identity.digest is None else self._static(identity.digest) or identity

    def _static(self, digest: str) -> Identity | None:
        return None if self._files.tokens is None else self._files.tokens.content.of(digest)

    def _refuse_token(self, error: TokenRefused, client: str, headers: Mapping[bytes, bytes]) -> NoReturn:
        self.audit.denied(error.reason, client, None, str(error))
        challenge = self._challenge(headers, error)
        raise Unauthenticated(f"authorization: {error}.", challenge=challenge) from None

    def _challenge(self, headers: Mapping[bytes, bytes], error: TokenRefused) -> bytes:
        """Return what the 401 demands (RFC 6750 3): its error is not named to a request without a token."""
        parts = ['realm="openmessaging-bridge"']
        if error.reason is not Reason.MISSING:
            text = str(error).replace("`", "'")
            parts += ['error="invalid_token"', f'error_description="{text}"']
        if (origin := self._origin(headers)) is not None:
            parts.append(f'resource_metadata="{origin}{METADATA_PATH}"')
        return f"Bearer {', '.join(parts)}".encode("ascii", "replace")

    def _origin(self, headers: Mapping[bytes, bytes]) -> str | None:
        if self._resource is not None:
            return self._resource
        origin = f"{self._scheme}://{headers.get(b'host', b'').decode('latin-1')}"
        return origin if _ORIGIN.fullmatch(origin) else None

    async def _watch(self) -> None:
        while True:
            for file in self._files.all():
                if file.has_changed():
                    await asyncio.to_thread(file.reload)  # a large one takes long
            for _, source in self._issuers.values():
                source.tick()
            for number, opened in enumerate(tuple(self._open), 1):
                if number % _JUDGED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if (error := self.lost(opened.caller.identity, opened.caller.checked)) is not None:
                    opened.end(error)
            for call in self.each_second:
                call()
            await asyncio.sleep(_TICK)


class _Open:
    """A request that waits or a stream that is open."""

    __slots__ = ("caller", "end")

    def __init__(self, caller: Caller, end: Callable[[BridgeError], None]) -> None:
        self.caller = caller
        self.end = end


def _find(source: KeySource, unverified: "Unverified") -> "PyJWK | None":
    return None if source.keys is None else source.keys.find(unverified.key_id, unverified.algorithm)
