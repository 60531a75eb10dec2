"""Tokens for OAUTHBEARER: from a file that is renewed from outside, or from an endpoint for client credentials."""

import time
from pathlib import Path
from typing import Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from adapters.kafka.options import Security
from bridge.errors import BackendUnavailable

_TIMEOUT: Final = 5.0
"""Seconds that the endpoint may take: the connection waits for it, and so do others of the same client."""
_MARGIN: Final = 0.8
"""A token is used for this part of its life."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # has no types
    """What kafka-python asks whenever a connection is made or renewed."""

    def __init__(self, security: Security) -> None:
        super().__init__()
        self._security = security
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """Return a token that is valid now. Raises `BackendUnavailable`, with which the connection fails."""
        if self._security.token_file is not None:
            return _read(self._security.token_file)
        if time.monotonic() >= self._until:
            self._token, seconds = _ask(self._security)
            self._until = time.monotonic() + seconds * _MARGIN
        return self._token


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BackendUnavailable(f"there is no token in token_file ({error}).") from error


def _ask(security: Security) -> tuple[str, float]:
    """Ask the endpoint (RFC 6749, section 4.4); return the token and the seconds it lives."""
    import httpx  # noqa: PLC0415 - 6 MiB and 50 ms that few need

    form = {"grant_type": "client_credentials"} | ({"scope": security.scope} if security.scope else {})
    login = (security.user or "", security.password or "")
    try:
        answer = httpx.post(security.token_url or "", data=form, auth=login, timeout=_TIMEOUT)
        answer.raise_for_status()
        given = answer.json()
        return str(given["access_token"]), float(given.get("expires_in", 0))
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise BackendUnavailable(f"token_url gives no token ({type(error).__name__}: {error}).") from error
