"""JSON Web Tokens (RFC 7519) of the configured issuers: checked by PyJWT, with the keys of `key_sets.py`.

Imported only if an issuer is configured, as PyJWT is an extra.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt
from jwt.types import Options

from bridge.identity.principals import LEEWAY, PRINCIPAL_MAX, Identity
from bridge.identity.refusals import Reason, TokenRefused

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
"""Allowed for an issuer that names none. No setting allows a symmetric one."""
TOKEN_MAX: Final = 8192
"""Bytes of the longest token."""
GROUPS_MAX: Final = 200
"""Groups of a token that are read."""

_PARTS: Final = 3
_REFUSED_HEADERS: Final = ("crit", "jwk", "jku", "x5u", "x5c")
"""Headers that change the meaning of a token, or bring a key with it."""
_TIME_MAX: Final = 1 << 53
_OPTIONS: Final[Options] = {
    "require": ["exp", "aud", "iss"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}
"""The times are checked here, with the clock of the bridge."""


class Issuer(NamedTuple):
    """One issuer of the settings."""

    name: str
    """Begins the names of its principals and groups: no other issuer can give the same."""
    issuer: str
    audience: str
    algorithms: frozenset[str]
    principal_claim: str
    groups_claim: str


class Unverified(NamedTuple):
    """What a token says of itself, before its signature is checked."""

    algorithm: str
    key_id: str | None
    issuer: str


class Keys:
    """The public keys of one issuer."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._by_id = {str(each["kid"]): each for each in documents if "kid" in each}
        self._documents = documents
        self._prepared: dict[tuple[str | None, str], jwt.PyJWK] = {}

    @classmethod
    def parse(cls, text: bytes) -> "Keys":
        """Read a JWK set (RFC 7517 5). Keys of other kinds and uses are left out. Raises `ValueError`."""
        try:
            listed = json.loads(text)["keys"]
            documents = [each for each in listed if each["kty"] in {"RSA", "EC", "OKP"} and _verifies(each)]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError('it is no JWK set, {"keys": [...]}') from None
        usable = [each for each in documents if _is_usable(each)]
        if not usable:
            raise ValueError("it has no public RSA, EC or OKP key of sufficient length that can verify signatures")
        return cls(usable)

    def __len__(self) -> int:
        return len(self._documents)

    def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key of an id, or the only one for a token that names none; None: there is none."""
        if (prepared := self._prepared.get((key_id, algorithm))) is not None:
            return prepared
        document = self._by_id.get(key_id) if key_id is not None else None
        if key_id is None and len(self._documents) == 1:
            document = self._documents[0]
        if document is None:
            return None
        if document.get("alg", algorithm) != algorithm:
            raise TokenRefused(Reason.SIGNATURE, "the token's key is for another algorithm")
        try:
            key = jwt.PyJWK(dict(document), algorithm)
        except jwt.PyJWTError:
            raise TokenRefused(Reason.SIGNATURE, "the token's key is for another algorithm") from None
        self._prepared[key_id, algorithm] = key
        return key


def read_unverified(token: str) -> Unverified:
    """Return which key a token needs. Raises `TokenRefused`."""
    parts = token.split(".")
    if len(token) > TOKEN_MAX:
        raise TokenRefused(Reason.OVERSIZED, f"the token has more than {TOKEN_MAX} bytes")
    if len(parts) != _PARTS:
        raise TokenRefused(Reason.MALFORMED, "the token is no JWT")
    header, claims = _object(parts[0]), _object(parts[1])
    for name in _REFUSED_HEADERS:
        if name in header:
            raise TokenRefused(Reason.MALFORMED, f"the token has the header {name}, which is not allowed")
    algorithm, key_id, issuer = header.get("alg"), header.get("kid"), claims.get("iss")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise TokenRefused(Reason.MALFORMED, "alg and kid of the token are no texts")
    if not isinstance(issuer, str):
        raise TokenRefused(Reason.ISSUER, "the token names no issuer")
    return Unverified(algorithm, key_id, issuer)


def verify(token: str, issuer: Issuer, key: jwt.PyJWK, algorithm: str, now: int) -> Identity:
    """Return the identity that a token shows. `now`: ms since 1970. Raises `TokenRefused`."""
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=issuer.audience,
            issuer=issuer.issuer,
            options=_OPTIONS,
        )
    except jwt.InvalidSignatureError:
        raise TokenRefused(Reason.SIGNATURE, "the signature of the token is wrong") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenRefused(Reason.MALFORMED, f"the token has no claim {error.claim}") from None
    except jwt.InvalidAudienceError:
        raise TokenRefused(Reason.AUDIENCE, "the token is for another audience") from None
    except jwt.InvalidIssuerError:
        raise TokenRefused(Reason.ISSUER, "the token is of another issuer") from None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        raise TokenRefused(Reason.MALFORMED, "the token is no valid JWT") from None
    expires = _time(claims, "exp")
    if now >= expires + LEEWAY:
        raise TokenRefused(Reason.EXPIRED, "the token has expired")
    if "nbf" in claims and now + LEEWAY < _time(claims, "nbf"):
        raise TokenRefused(Reason.EARLY, "the token is not valid yet")
    return _identity(claims, issuer, expires)


def _identity(claims: Mapping[str, Any], issuer: Issuer, expires: int) -> Identity:
    principal, groups = claims.get(issuer.principal_claim), claims.get(issuer.groups_claim, [])
    if not isinstance(principal, str) or not principal.strip():
        raise TokenRefused(Reason.MALFORMED, f"the token has no claim {issuer.principal_claim}")
    listed = [groups] if isinstance(groups, str) else groups
    if not isinstance(listed, list) or not all(isinstance(group, str) for group in listed):
        raise TokenRefused(Reason.MALFORMED, f"the claim {issuer.groups_claim} is no list of texts")
    named = f"{issuer.name}:{principal}"
    if len(named) > PRINCIPAL_MAX or not named.isprintable() or len(listed) > GROUPS_MAX:
        raise TokenRefused(Reason.MALFORMED, "the principal is too long or has control characters, or has many groups")
    jti = claims.get("jti")
    return Identity(named, tuple(f"{issuer.name}:{group}" for group in listed), expires, jti and str(jti))


def _time(claims: Mapping[str, Any], name: str) -> int:
    """Return a NumericDate in ms. Raises `TokenRefused`."""
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TIME_MAX:
        raise TokenRefused(Reason.MALFORMED, f"the claim {name} is no time")
    return int(value * 1000)


def _object(part: str) -> Mapping[str, Any]:
    """Return a part of a token as JSON. Raises `TokenRefused`."""
    try:
        decoded = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        decoded = None
    if not isinstance(decoded, dict):
        raise TokenRefused(Reason.MALFORMED, "the token is no JWT")
    return decoded


def _verifies(document: Mapping[str, Any]) -> bool:
    return document.get("use", "sig") == "sig" and "verify" in document.get("key_ops", ["verify"])


def _is_usable(document: Mapping[str, Any]) -> bool:
    """Return whether the library can read a key, and it is public and long enough."""
    try:
        key = jwt.PyJWK(dict(document))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return False
    return "d" not in document and key.Algorithm.check_key_length(key.key) is None
