"""A bridge with identities, its files, and clients of its principals."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from bridge.identity.principals import digest_of
from tests.launch import Bridge
from tests.tokens import AUDIENCE, TestIssuer

STATIC = ("shop", "billing", "ops", "auditor", "denied")
"""Principals that have a static token, `NAME-token`."""

RULES: tuple[dict[str, Any], ...] = (
    {"principals": ["shop"], "allow": ["produce", "transact"], "destinations": ["orders"]},
    {"groups": ["login:sales"], "allow": ["produce"], "destinations": ["orders", "pay*"]},
    {
        "principals": ["billing"],
        "allow": ["consume", "callback"],
        "destinations": ["orders"],
        "consumer_groups": ["billing", "b-*"],
    },
    {"principals": ["auditor"], "allow": ["inspect"], "destinations": ["*"]},
    {"principals": ["ops", "denied"], "allow": ["*"], "destinations": ["*"], "consumer_groups": ["*"]},
    {"principals": ["den*"], "deny": ["*"], "destinations": ["orders"]},
)


class Gateway:
    """Its files can be changed while it runs. Use it as a context manager."""

    def __init__(
        self,
        directory: Path,
        server: str,
        settings: Mapping[str, str] | None = None,
        *,
        backend: str = "memory://",
        **sections: object,
    ) -> None:
        """`settings` are OMS_* variables, `sections` of the settings file."""
        self.issuer = TestIssuer()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "keys.json").write_bytes(self.issuer.jwks())
        self.write("rules", {"rules": [*RULES]})
        self.write("revoked", {})
        self.write_tokens(*STATIC)
        issuer = {"issuer": self.issuer.issuer, "audience": AUDIENCE, "keys": str(directory / "keys.json")}
        files = {name: str(directory / f"{name}.yaml") for name in ("rules", "tokens", "revoked")}
        self.write("bridge", {"auth": {**files, "issuers": {"login": issuer}}, **sections})
        config = {"OMS_CONFIG": str(directory / "bridge.yaml"), **(settings or {})}
        self.bridge = Bridge(directory / "run", server=server, settings=config, backend=backend)

    def write(self, name: str, content: object) -> None:
        """Replace a file: JSON is YAML."""
        path = self.directory / f"{name}.yaml"
        path.with_suffix(".new").write_text(json.dumps(content))
        path.with_suffix(".new").replace(path)

    def write_tokens(self, *principals: str) -> None:
        """Write the static tokens of these principals."""
        tokens = [{"principal": each, "hash": digest_of(f"{each}-token")} for each in principals]
        self.write("tokens", {"tokens": tokens})

    def headers(self, principal: str | None, **claims: Any) -> dict[str, str]:  # noqa: ANN401 - claims
        """Return the headers of a principal; one with a colon has a JWT, None no token."""
        if principal is None:
            return {"x-oms-version": "1.0.0"}
        _, colon, subject = principal.partition(":")
        token = self.issuer.token(sub=subject, **claims) if colon else f"{principal}-token"
        return {"x-oms-version": "1.0.0", "authorization": f"Bearer {token}"}

    def client(self, principal: str | None, **claims: Any) -> httpx.Client:  # noqa: ANN401 - claims
        """Return a client of the data port."""
        return httpx.Client(base_url=self.bridge.url, headers=self.headers(principal, **claims), timeout=60)

    def management(self, principal: str | None) -> httpx.Client:
        """Return a client of the management port."""
        return httpx.Client(base_url=self.bridge.management, headers=self.headers(principal), timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bridge.__exit__(kind, error, trace)
