"""TLS and login of kafka-python's clients, and tokens for OAUTHBEARER from a file or from an endpoint."""

import ssl
import time
from typing import Any, Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from adapters.kafka.options import Options, Security
from bridge.errors import BackendUnavailable, CannotStart


def connection_settings(options: Options) -> dict[str, Any]:
    """Return the settings of the cluster for each of kafka-python's classes. Raises `CannotStart` for bad files."""
    security = options.security
    settings: dict[str, Any] = {
        "bootstrap_servers": list(options.servers),
        "client_id": f"oms-bridge-{options.instance}" if options.instance else "oms-bridge",
        "reconnect_backoff_max_ms": 500,
        "security_protocol": ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT"),
    }
    if security.tls:
        settings["ssl_context"] = tls_context(security)
    if security.mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": TokenProvider(security)}
    elif security.mechanism is not None:
        settings |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.user,
            "sasl_plain_password": security.password,
        }
    return settings


def tls_context(security: Security) -> ssl.SSLContext:
    """Build it once, so that an invalid file is reported at the start. Raises `CannotStart`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if security.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(security.ca)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"ca: {security.ca} holds no certificates in PEM form ({error}).") from error
    if security.certificate is not None:
        try:
            context.load_cert_chain(security.certificate, security.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise CannotStart(
                f"certificate: {security.certificate} and its key are not a pair of PEM files without a password"
                f" ({error})."
            ) from error
    return context


_TIMEOUT: Final = 5.0
"""Seconds that the endpoint may take: the connection waits for it, and so do others of the same client."""
_MARGIN: Final = 0.8
"""A token is used for this part of its life."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # has no types
    """Returns a token whenever kafka-python opens a connection or renews a login."""

    def __init__(self, security: Security) -> None:
        super().__init__()
        self._security = security
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """Return a token that is valid now. Raises `BackendUnavailable`, with which the connection fails."""
        if self._security.token_file is not None:
            try:
                return self._security.token_file.read_text("utf-8-sig").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise BackendUnavailable(f"there is no token in token_file ({error}).") from error
        if time.monotonic() >= self._until:
            self._token, seconds = _ask(self._security)
            self._until = time.monotonic() + seconds * _MARGIN
        return self._token


def _ask(security: Security) -> tuple[str, float]:
    """Ask the endpoint (RFC 6749, section 4.4); return the token and its lifetime in seconds."""
    import httpx  # noqa: PLC0415 - 6 MiB and 50 ms that few need

    form = {"grant_type": "client_credentials"} | ({"scope": security.scope} if security.scope else {})
    login = (security.user or "", security.password or "")
    try:
        answer = httpx.post(security.token_url or "", data=form, auth=login, timeout=_TIMEOUT)
        answer.raise_for_status()
        given = answer.json()
        return str(given["access_token"]), float(given.get("expires_in", 0))
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise BackendUnavailable(f"token_url returned no token ({type(error).__name__}: {error}).") from error
