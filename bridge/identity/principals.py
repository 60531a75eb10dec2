"""A client that has shown who it is, and the files that list static tokens and what is revoked."""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

LEEWAY: Final = 30_000
"""Milliseconds that the clock of an issuer may differ from the bridge's."""
PRINCIPAL_MAX: Final = 255
"""Characters of the name of a principal or a group."""

_NAME: Final = re.compile(r"[A-Za-z0-9._@/-]{1,255}")
"""Of a static token. It has no colon: the principals of issuers begin with the issuer's name and a colon."""
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_TOKEN_PREFIX: Final = "oms_"  # noqa: S105 - so that scanners for leaked secrets can find tokens
_TOKEN_BYTES: Final = 32


class Identity(NamedTuple):
    """A principal, as one token shows it."""

    principal: str
    groups: tuple[str, ...] = ()
    expires: int | None = None
    """When the token expires, ms since 1970; None: never."""
    jti: str | None = None
    """`jti` of a JWT, by which it can be revoked."""
    digest: str | None = None
    """Hash of a static token, which the file of tokens must still have; None: another kind of token."""

    def encode(self) -> dict[str, Any]:
        """Return the identity as JSON, to be stored with what it owns."""
        return self._asdict()

    @classmethod
    def decode(cls, stored: object) -> Self:
        """Return a stored identity. Raises `ValueError`."""
        if not isinstance(stored, dict) or not isinstance(principal := stored.get("principal"), str):
            raise ValueError("the owner is not an identity")  # noqa: TRY004 - the caller reports one kind of error
        expires, groups = stored.get("expires"), stored.get("groups") or ()
        if not (expires is None or isinstance(expires, int)) or not all(isinstance(group, str) for group in groups):
            raise ValueError("the owner is not an identity")
        return cls(principal, tuple(groups), expires, stored.get("jti"), stored.get("digest"))


class FileError(ValueError):
    """A file of tokens, rules or revocations cannot be used. The text says where, and repeats no secret."""


def digest_of(token: str) -> str:
    """Return the hash of a static token, as the file has it."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def create_token() -> str:
    """Return a new static token: 256 random bits."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


class StaticTokens:
    """The static tokens of a file, by their hashes."""

    def __init__(self, by_digest: Mapping[str, Identity]) -> None:
        self._by_digest = by_digest

    @classmethod
    def parse(cls, content: object) -> Self:
        """Read the content of the file. Raises `FileError`."""
        by_digest: dict[str, Identity] = {}
        for place, entry in enumerate(entries(content, "tokens"), 1):
            known = mapping(entry, f"token {place}", {"principal", "groups", "hash", "expires"})
            principal, digest = known.get("principal"), known.get("hash")
            if not isinstance(principal, str) or not _NAME.fullmatch(principal):
                raise FileError(f"token {place}: principal is a name of 1 to 255 of A-Z a-z 0-9 . _ @ / -")
            if not isinstance(digest, str) or not _HASH.fullmatch(digest):
                raise FileError(f"token {place}: hash is `sha256:` and 64 hex digits, as `oms-bridge token` prints it")
            if digest in by_digest:
                raise FileError(f"token {place}: this hash occurs a second time")
            groups = tuple(names(known.get("groups", []), f"token {place}: groups"))
            if not all(map(_NAME.fullmatch, groups)):
                raise FileError(f"token {place}: a group is a name of 1 to 255 of A-Z a-z 0-9 . _ @ / -")
            expires = None if "expires" not in known else _time(known["expires"], f"token {place}: expires")
            by_digest[digest] = Identity(principal, groups, expires, None, digest)
        return cls(by_digest)

    def find(self, token: str) -> Identity | None:
        """Return the identity of a token; None: the file does not have it."""
        return self._by_digest.get(digest_of(token))

    def of(self, digest: str) -> Identity | None:
        """Return the identity of a hash; None: the file does not have it any more."""
        return self._by_digest.get(digest)


class Revoked(NamedTuple):
    """What is revoked: ids of tokens, and principals with all their tokens."""

    jtis: frozenset[str] = frozenset()
    principals: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, content: object) -> Self:
        """Read the content of the file. Raises `FileError`."""
        known = mapping(content or {}, "the file", {"jti", "principals"})
        return cls(
            frozenset(names(known.get("jti", []), "jti")), frozenset(names(known.get("principals", []), "principals"))
        )

    def has(self, identity: Identity) -> bool:
        """Return whether an identity is revoked."""
        return identity.principal in self.principals or (identity.jti is not None and identity.jti in self.jtis)


def entries(content: object, name: str) -> Sequence[object]:
    """Return the list that a file has under its only name. Raises `FileError`."""
    listed = mapping(content or {}, "the file", {name}).get(name, [])
    if not isinstance(listed, list):
        raise FileError(f"{name} is a list")
    return listed


def mapping(value: object, place: str, allowed: set[str]) -> Mapping[str, object]:
    """Return a mapping with no other than the allowed names. Raises `FileError`."""
    if not isinstance(value, dict):
        raise FileError(f"{place}: names and values are expected, such as {' and '.join(sorted(allowed))}")
    for name in value:
        if name not in allowed:
            raise FileError(f"{place}: unknown name {str(name)[:80]!a}; {', '.join(sorted(allowed))} are allowed")
    return value


def names(value: object, place: str) -> list[str]:
    """Return a list of texts; a single text is a list of one. Raises `FileError`."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
        raise FileError(f"{place}: a list of names is expected")
    return listed


def _time(value: object, place: str) -> int:
    """Return a time in ms since 1970. Raises `FileError`."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise FileError(f"{place} is a time such as 2027-01-31T00:00:00Z")
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
