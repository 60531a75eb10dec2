"""The login and TLS of a `kafka://` URL, as settings of Java's client. Files are read here: workers have none."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from adapters.kafka.options import Security
from adapters.kafka.security import tls_context
from bridge.errors import CannotStart

_MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_CERTIFICATE: Final = "CERTIFICATE"
_KEY: Final = "PRIVATE KEY"


def java_settings(security: Security) -> dict[str, str]:
    """Return settings of Java's client. Raises `CannotStart` for what it cannot do, and for bad files."""
    protocol = ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT")
    return {"security.protocol": protocol, **_tls(security), **_login(security)}


def _tls(security: Security) -> Mapping[str, str]:
    if not security.tls:
        return {}
    tls_context(security)  # an invalid file fails as in `serve`
    settings: dict[str, str] = {}
    if security.ca is not None:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _blocks(security.ca, _CERTIFICATE),
        }
    if security.certificate is not None and security.key is not None:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _blocks(security.certificate, _CERTIFICATE),
            "ssl.keystore.key": _key(security.key),
        }
    return settings


def _login(security: Security) -> Mapping[str, str]:
    if security.mechanism is None:
        return {}
    if security.mechanism == "OAUTHBEARER":
        raise CannotStart(
            "mechanism=OAUTHBEARER: the mirror reads Kafka with Spark's connector, which cannot use the "
            "bridge's tokens; use a user with SCRAM or PLAIN, or a certificate."
        )
    module = f"org.apache.kafka.common.security.{_MODULES[security.mechanism]}"
    user, password = _quoted(security.user or ""), _quoted(security.password or "")
    return {
        "sasl.mechanism": security.mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _blocks(file: Path, kind: str) -> str:
    text = file.read_text("utf-8", "replace")
    return "\n".join(block[0] for block in _BLOCK.finditer(text) if block[1] == kind)


def _key(file: Path) -> str:
    key = _blocks(file, _KEY)
    if not key:
        raise CannotStart(
            f"key: {file} is not in PKCS #8, the only form that Java's client reads "
            f"(openssl pkcs8 -topk8 -nocrypt -in {file} writes it)."
        )
    return key
