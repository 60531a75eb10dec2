"""How kafka-python is told who the bridge is and whom to trust."""

import ssl
from typing import Any

from adapters.kafka.drivers.kafka_python.tokens import TokenProvider
from adapters.kafka.options import Options, Security
from bridge.errors import CannotStart


def connection_settings(options: Options) -> dict[str, Any]:
    """Return what each of kafka-python's classes is told about the cluster. Raises `CannotStart` for bad files."""
    return {
        "bootstrap_servers": list(options.servers),
        "client_id": f"oms-bridge-{options.instance}" if options.instance else "oms-bridge",
        "reconnect_backoff_max_ms": 500,
        **_security(options.security),
    }


def _security(security: Security) -> dict[str, Any]:
    protocol = ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT")
    settings: dict[str, Any] = {"security_protocol": protocol}
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
    """Build it once, so that a file that is none is told at the start. Raises `CannotStart`."""
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
                f"certificate: {security.certificate} and its key are no pair in PEM form without a password ({error})."
            ) from error
    return context
