"""Authorities and certificates for bridges behind TLS, and what their clients trust and show."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448

PAST: Final = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE: Final = datetime(2100, 1, 1, tzinfo=UTC)


class Pki:
    """A server's certificate by an intermediate authority, and another authority for the certificates of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.clients, self.stranger = trustme.CA(), trustme.CA(), trustme.CA()
        issued = self.root.create_child_ca().issue_cert("localhost", "127.0.0.1")
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        self.certificate = self.file("server.pem", chain)
        self.key = self.file("server.key", issued.private_key_pem.bytes())
        self.ca = self.file("ca.pem", self.root.cert_pem.bytes())
        self.client_ca = self.file("client-ca.pem", self.clients.cert_pem.bytes())
        self.other_ca = self.file("other-ca.pem", self.stranger.cert_pem.bytes())
        self.other_key = self.file("other.key", self.root.issue_cert("localhost").private_key_pem.bytes())
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        locked = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
        self.locked_key = self.file("locked.key", locked)

    def file(self, name: str, content: bytes) -> Path:
        """Write a file and return its path."""
        path = self.folder / name
        path.write_bytes(content)
        return path

    def other_forms(self) -> dict[str, tuple[Path, Path]]:
        """Return pairs that hold the same in other ways: what other tools write."""
        chain, traditional = self.certificate.read_bytes(), self.key.read_bytes()
        key = serialization.load_pem_private_key(traditional, None)
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        pkcs8 = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        both = self.file("both.pem", b"Bag Attributes\n  friendlyName: x\n" + pkcs8 + b"subject=x\n" + chain)
        rsa = self.root.issue_cert("localhost", key_type=trustme.KeyType.RSA)
        return {
            "pkcs8": (self.certificate, self.file("pkcs8.key", pkcs8)),
            "one-file-with-text": (both, both),
            "line-ends-of-windows": (
                self.file("crlf.pem", chain.replace(b"\n", b"\r\n")),
                self.file("crlf.key", traditional.replace(b"\n", b"\r\n")),
            ),
            "rsa": (
                self.file("rsa.pem", b"".join(part.bytes() for part in rsa.cert_chain_pems)),
                self.file("rsa.key", rsa.private_key_pem.bytes()),
            ),
        }

    def self_signed(self, name: str, key: ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey) -> tuple[Path, Path]:
        """Write a certificate for localhost that this key signs itself, and the key. Returns both files."""
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), PAST, FUTURE)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        signed = made.sign(key, hashes.SHA512() if isinstance(key, ec.EllipticCurvePrivateKey) else None)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
        return self.file(f"{name}.pem", signed.public_bytes(pem)), self.file(f"{name}.key", private)

    def settings(self, *, mutual: bool) -> dict[str, str]:
        """Return the variables of a bridge; `mutual`: it demands certificates of its clients."""
        settings = {"OMS_TLS__CERTIFICATE": str(self.certificate), "OMS_TLS__KEY": str(self.key)}
        return settings | ({"OMS_TLS__CLIENT_CA": str(self.client_ca)} if mutual else {})

    def trusting(self) -> ssl.SSLContext:
        """Return what a client without a certificate uses."""
        return ssl.create_default_context(cafile=self.ca)

    def known(self) -> ssl.SSLContext:
        """Return what a client uses whose certificate the bridge accepts."""
        return self._showing(self.clients.issue_cert("client@example.org"))

    def strangers(self) -> dict[str, ssl.SSLContext]:
        """Return clients that trust the bridge, and that it must refuse when it demands certificates."""
        return {
            "no certificate": self.trusting(),
            "another authority's certificate": self._showing(self.stranger.issue_cert("client@example.org")),
            "the server's authority's certificate": self._showing(self.root.issue_cert("client@example.org")),
            "an expired certificate": self._showing(self.clients.issue_cert("client@example.org", not_after=PAST)),
        }

    def _showing(self, certificate: trustme.LeafCert) -> ssl.SSLContext:
        context = self.trusting()
        certificate.configure_cert(context)
        return context
