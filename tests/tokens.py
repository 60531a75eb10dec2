"""JSON Web Tokens for tests: an issuer with its keys."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://login.test"
AUDIENCE = "oms-bridge"


class TestIssuer:
    """Signs tokens; `jwks` is what it publishes."""

    __test__ = False

    def __init__(self, *, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.keys: dict[str, tuple[str, Any]] = {
            "rsa": ("RS256", rsa.generate_private_key(65537, 2048)),
            "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
            "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
        }

    def claims(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - claims
        """Return valid claims; None removes one."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "shop", "exp": now + 600, **more}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str = "ec", *, headers: dict[str, Any] | None = None, **claims: Any) -> str:  # noqa: ANN401
        """Return a token, signed by the key."""
        algorithm, key = self.keys[kid]
        return jwt.encode(self.claims(**claims), key, algorithm, headers={"kid": kid, **(headers or {})})

    def jwks(self, *kids: str) -> bytes:
        """Return the JWK set of these keys, or of all."""
        documents = []
        for kid in kids or self.keys:
            algorithm, key = self.keys[kid]
            document = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
            documents.append({**document, "kid": kid, "use": "sig", "alg": algorithm})
        return json.dumps({"keys": documents}).encode()

    def forged(self) -> dict[str, str]:
        """Return tokens that must be refused, by what is wrong with them."""
        public = self.keys["rsa"][1].public_key()
        now = int(time.time())
        other, none = TestIssuer(issuer=self.issuer), {"alg": "none", "kid": "rsa"}
        good = self.token()
        head, body, signature = good.split(".")
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return {
            "another issuer's key of the same id": other.token(),
            "expired": self.token(exp=now - 60),
            "not yet valid": self.token(nbf=now + 60),
            "alg none": f"{_part(none)}.{body}.",
            "alg none with a signature": f"{_part(none)}.{body}.{signature}",
            "HMAC with the public key": _hmac(self.claims(), pem, "rsa"),
            "HMAC with the JWK set": _hmac(self.claims(), self.jwks(), "rsa"),
            "another audience": self.token(aud="other"),
            "no audience": self.token(aud=None),
            "an empty audience": self.token(aud=[]),
            "another issuer": self.token(iss="https://evil.test"),
            "no issuer": self.token(iss=None),
            "no expiry": self.token(exp=None),
            "an expiry that is no number": self.token(exp="soon"),
            "an unknown key": self.token(headers={"kid": "other"}),
            "the key of another algorithm": self.token(headers={"kid": "rsa"}),
            "crit": self.token(headers={"crit": ["exp"]}),
            "its own key": self.token(headers={"jwk": json.loads(self.jwks("ec"))["keys"][0]}),
            "a URL of keys": self.token(headers={"jku": "http://127.0.0.1/keys"}),
            "no principal": self.token(sub=None),
            "an empty principal": self.token(sub=" "),
            "a principal with a control character": self.token(sub="a\nb"),
            "groups that are no list": self.token(groups={"a": 1}),
            "oversized": self.token(more="x" * 9000),
            "a changed body": f"{head}.{_part(self.claims(sub='admin'))}.{signature}",
            "no signature": f"{head}.{body}.",
            "two parts": f"{head}.{body}",
            "four parts": f"{good}.x",
            "a deep header": f"{_base64(b'[' * 5000)}.{body}.{signature}",
            "an infinite expiry": f"{head}.{_part(self.claims(exp=float('inf')))}.{signature}",
        }


def _hmac(claims: dict[str, Any], secret: bytes, kid: str) -> str:
    """Sign as an attacker does: PyJWT refuses a public key as a secret."""
    signed = f"{_part({'alg': 'HS256', 'kid': kid})}.{_part(claims)}"
    return f"{signed}.{_base64(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def _part(content: dict[str, Any]) -> str:
    return _base64(json.dumps(content).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
