"""`oms-bridge produce`, `pull` and `push`, and the Python client, against a bridge behind TLS."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bridge.client import Client
from bridge.errors import BackendUnavailable, BridgeError
from bridge.message import Message
from tests.launch import Bridge
from tests.tls.conftest import Secured
from tests.tls.pki import Pki
from tests.tls.talk import PATIENCE, fresh


def address(bridge: Bridge) -> str:
    """Return the bridge's address under the name in its certificate."""
    return f"https://localhost:{urlsplit(bridge.url).port}"


def oms(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command: its exit status, its output and its errors."""
    done = subprocess.run(
        [Path(sys.executable).with_name("oms-bridge"), *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith(("OMS_", "SSL_CERT"))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_commands_trust_the_authority_in_the_file(secured: Secured, pki: Pki) -> None:
    bridge, target = secured(), fresh()
    there = ("--url", address(bridge), "--ca", pki.ca)
    for body in ("first", "second"):
        status, _, errors = oms("produce", target, body, *there)
        assert (status, errors) == (0, "")
    status, output, errors = oms("pull", target, "--group", "pulling", "--raw", *there)
    assert (status, output, errors) == (0, "first", "")
    status, output, errors = oms("push", target, "--group", "pushing", "--count", "2", "--json", *there)
    assert (status, errors) == (0, "")
    assert [json.loads(line)["data"] for line in output.splitlines()] == ["Zmlyc3Q=", "c2Vjb25k"]


def test_the_commands_say_in_one_sentence_why_they_do_not_trust(
    secured: Secured, pki: Pki, subtests: pytest.Subtests
) -> None:
    bridge, target = secured(), fresh()
    cleartext = address(bridge).replace("https:", "http:")
    cases: dict[str, tuple[Sequence[str | Path], str]] = {
        "the public authorities": (("--url", address(bridge)), "with --ca."),
        "another authority": (("--url", address(bridge), "--ca", pki.other_ca), "CERTIFICATE_VERIFY_FAILED"),
        "no TLS": (("--url", cleartext), "use https:// and name its authority with --ca."),
    }
    for what, (options, said) in cases.items():
        with subtests.test(what):
            status, output, errors = oms("produce", target, "x", *options)
            assert (status, output) == (1, "")
            assert errors.startswith("Error: "), errors
            assert said in errors
            assert errors.count("\n") == 1, errors


def test_the_commands_show_their_certificate(secured: Secured, pki: Pki) -> None:
    bridge, target = secured(mutual=True), fresh()
    there = ("--url", address(bridge), "--ca", pki.ca)
    known = pki.clients.issue_cert("client@example.org")
    certificate = pki.file("client.pem", known.cert_chain_pems[0].bytes())
    key = pki.file("client.key", known.private_key_pem.bytes())
    status, _, errors = oms("produce", target, "x", *there, "--cert", certificate, "--cert-key", key)
    assert (status, errors) == (0, "")
    status, _, errors = oms("produce", target, "x", *there)
    assert status == 1
    assert errors.endswith("use --cert and --cert-key.\n"), errors


async def test_the_client_shows_its_certificate(secured: Secured, pki: Pki) -> None:
    bridge, target = secured(mutual=True), fresh()
    async with Client(address(bridge), verify=pki.known()) as client:
        await client.produce(Message(target, b"x"))
        async with client.push(target, "g", max_messages=1) as messages:
            assert [delivery.message.body async for delivery in messages] == [b"x"]


async def test_the_client_fails_with_one_error_if_it_is_refused(
    secured: Secured, pki: Pki, subtests: pytest.Subtests
) -> None:
    """Without a certificate the bridge ends the connection; without the authority the client does not open one."""
    bridge = secured(mutual=True)
    for who, context in pki.strangers().items():
        with subtests.test(who):
            async with Client(address(bridge), verify=context) as client:
                with pytest.raises(BridgeError):
                    await client.produce(Message(fresh(), b"x"))
                with pytest.raises(BridgeError):
                    async with client.push(fresh(), "g"):
                        pass
    async with Client(address(bridge)) as client:
        with pytest.raises(BackendUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.produce(Message(fresh(), b"x"))
