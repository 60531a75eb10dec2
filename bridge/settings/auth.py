"""The section `auth`: who clients are, and what they may do."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from bridge.settings import values
from bridge.settings.limits import Section

Readable = Annotated[Path, AfterValidator(values.check_readable)]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
Algorithms = Annotated[tuple[Algorithm, ...], BeforeValidator(values.split_commas)]

_ISSUER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESERVED: Final = "webhook"
"""Begins the principals of signed requests."""


class IssuerSettings(Section):
    """An issuer of JSON Web Tokens."""

    issuer: str = Field(min_length=1, description="Its claim `iss`, such as `https://login.example/realms/shop`.")
    audience: str = Field(min_length=1, description="The claim `aud` that its tokens must have for this bridge.")
    keys: Annotated[str, AfterValidator(values.check_keys)] = Field(
        description="Its JWK set: an `https://` URL, or a file that is read again when it changes."
    )
    ca: Readable | None = Field(
        default=None, description="PEM file of the authorities for that URL, instead of the public ones."
    )
    algorithms: Algorithms = Field(
        default=(), description="Algorithms of its signatures. Unset: RS256, PS256, ES256 and EdDSA."
    )
    principal: str = Field(default="sub", min_length=1, description="Claim with the principal.")
    groups: str = Field(default="groups", min_length=1, description="Claim with the groups, a text or a list.")


class AuthSettings(Section):
    """Identities and permissions. Off until `rules` names a file."""

    rules: Readable = Field(description="YAML file of rules; set: every request needs an identity and a permission.")
    tokens: Readable | None = Field(
        default=None, description="YAML file of static tokens, by their hashes; `oms-bridge token` makes one."
    )
    revoked: Readable | None = Field(
        default=None, description="YAML file of what is revoked: `jti` of tokens, and `principals`."
    )
    issuers: dict[str, IssuerSettings] = Field(
        default={}, description="Issuers of JWTs, by names that begin their principals: `NAME:sub`."
    )
    resource: Annotated[str, AfterValidator(values.check_origin)] | None = Field(
        default=None, description="URL of the bridge for its clients, if a proxy changes scheme or host."
    )
    producer_property: Annotated[str, AfterValidator(values.check_property_name)] | None = Field(
        default=None, description="Property of each message that names its producer's principal."
    )

    @field_validator("issuers")
    @classmethod
    def _names_are_prefixes(cls, issuers: dict[str, IssuerSettings]) -> dict[str, IssuerSettings]:
        if not all(_ISSUER_NAME.fullmatch(name) for name in issuers) or _RESERVED in issuers:
            raise ValueError("the name of an issuer has 1 to 64 of A-Z a-z 0-9 . _ - and is not webhook")
        if len({each.issuer for each in issuers.values()}) < len(issuers):
            raise ValueError("two of auth.issuers have the same issuer")
        return issuers

    @model_validator(mode="after")
    def _someone_can_come(self) -> Self:
        if self.tokens is None and not self.issuers:
            raise ValueError("auth.rules needs auth.tokens or auth.issuers: who clients are")
        return self
