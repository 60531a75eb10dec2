"""Listeners for clients that must say who they are, and what the broker needs to check it."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

LISTENERS: Final = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
"""Each is named after its security protocol."""

_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Security:
    """Adds the listeners and an authorizer to a Kafka.

    `users`: names and passwords, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; no quotes, commas or brackets. By
    OAUTHBEARER every `token` is accepted. A user may do nothing until an ACL allows it. A client without a name,
    as on PLAINTEXT and SSL, may do all and grants the ACLs.
    """

    users: Mapping[str, str]
    ask_certificate: bool = False
    """Whether a client of SSL must show a certificate, signed by the authority; it has no name for all that."""

    def properties(self, certificate: Path, authority: Path) -> dict[str, str]:
        """Return the broker's settings; the paths are those that `Authority` wrote."""
        plain = "".join(f' user_{name}="{password}"' for name, password in self.users.items())
        modules = "org.apache.kafka.common.security"
        settings = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *_SCRAM, "OAUTHBEARER")),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority),
        }
        if self.ask_certificate:
            settings["listener.name.ssl.ssl.client.auth"] = "required"
            settings["listener.name.ssl.ssl.principal.mapping.rules"] = "RULE:^.*$/ANONYMOUS/"
        for listener in ("sasl_plaintext", "sasl_ssl"):
            at = f"listener.name.{listener}"
            settings[f"{at}.plain.sasl.jaas.config"] = f"{modules}.plain.PlainLoginModule required{plain};"
            # Without its own validator the broker takes Kafka's for tests: tokens without a signature.
            settings[f"{at}.oauthbearer.sasl.jaas.config"] = f"{modules}.oauthbearer.OAuthBearerLoginModule required;"
            for mechanism in _SCRAM:
                settings[f"{at}.{mechanism.lower()}.sasl.jaas.config"] = f"{modules}.scram.ScramLoginModule required;"
        return settings

    def credentials(self) -> list[str]:
        """Return the SCRAM users as arguments of the storage tool, which puts them into the cluster's metadata."""
        return [
            f"--add-scram={mechanism}=[name={name},password={password}]"
            for name, password in self.users.items()
            for mechanism in _SCRAM
        ]


class Authority:
    """A certificate authority of one broker."""

    def __init__(self, file: Path) -> None:
        """Write its own certificate, as PEM."""
        self._signer = trustme.CA()
        self._signer.cert_pem.write_to_path(str(file))

    def certify(self, certificate: Path, user: str | None = None) -> None:
        """Write a private key with a certificate for 127.0.0.1 and localhost, and for a user's name, as PEM."""
        leaf = self._signer.issue_cert("127.0.0.1", "localhost", common_name=user)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        # Kafka reads PKCS #8 only; trustme writes the traditional form.
        encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        certificate.write_bytes(encoded + b"".join(each.bytes() for each in leaf.cert_chain_pems))


def token(user: str, seconds: float = 600) -> str:
    """Return a token for OAUTHBEARER, unsigned, that ends after the given time (before now, if negative)."""
    claims = {"sub": user, "iat": time.time() - 3600, "exp": time.time() + seconds}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
