"""Certificate files that cannot be used end the start, and `check`, with one sentence and exit status 1."""

import os
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.launch import Bridge
from tests.tls.pki import Pki
from tests.tls.talk import client

GUARD: Final = 60.0
PROGRAM: Final = str(Path(sys.executable).with_name("oms-bridge"))
CERTIFICATE: Final = "OMS_TLS__CERTIFICATE"
KEY: Final = "OMS_TLS__KEY"
CLIENT_CA: Final = "OMS_TLS__CLIENT_CA"


def ended(command: str, directory: Path, settings: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a command that ends: its exit status, its output and its errors."""
    done = _run([PROGRAM, command], directory, settings)
    return done.returncode, done.stdout, done.stderr


def wrong(pki: Pki) -> dict[str, tuple[dict[str, str], str]]:
    """Return what is wrong -> the changed variables, and the sentence."""
    pair = f"tls: cannot use {pki.certificate} with"
    text, empty = pki.file("text.txt", b"no PEM\n"), pki.file("empty.txt", b"")
    cut = pki.file("cut.pem", pki.certificate.read_bytes()[:300])
    cut_key = pki.file("cut.key", pki.key.read_bytes()[:100])
    missing, folder, unreadable = pki.folder / "missing", pki.folder, Path("/proc/self/mem")
    return {
        "a certificate that is missing": (
            {CERTIFICATE: str(missing)},
            f"{CERTIFICATE}: the file cannot be read (No such file or directory).",
        ),
        "a key that is missing": ({KEY: str(missing)}, f"{KEY}: the file cannot be read (No such file or directory)."),
        "a key that is a folder": ({KEY: str(folder)}, f"{KEY}: the file cannot be read (Is a directory)."),
        "an authority that is missing": (
            {CLIENT_CA: str(missing)},
            f"{CLIENT_CA}: the file cannot be read (No such file or directory).",
        ),
        "a certificate whose reading fails": (
            {CERTIFICATE: str(unreadable)},
            f"tls: cannot use {unreadable} with {pki.key}: Input/output error.",
        ),
        "a key whose reading fails": ({KEY: str(unreadable)}, f"{pair} {unreadable}: Input/output error."),
        "an authority whose reading fails": (
            {CLIENT_CA: str(unreadable)},
            f"tls: cannot use {unreadable}: Input/output error.",
        ),
        "another certificate's key": (
            {KEY: str(pki.other_key)},
            f"{pair} {pki.other_key}: the key does not belong to the certificate.",
        ),
        "an encrypted key": (
            {KEY: str(pki.locked_key)},
            f"{pair} {pki.locked_key}: the key is encrypted; give one without a password.",
        ),
        "certificate and key the wrong way round": (
            {CERTIFICATE: str(pki.key), KEY: str(pki.certificate)},
            f"tls: cannot use {pki.key} with {pki.certificate}: PEM is expected",
        ),
        "a certificate that is text": ({CERTIFICATE: str(text)}, f"tls: cannot use {text} with {pki.key}: PEM is"),
        "a certificate that is cut off": ({CERTIFICATE: str(cut)}, f"tls: cannot use {cut} with {pki.key}: PEM is"),
        "a key that is empty": ({KEY: str(empty)}, f"{pair} {empty}: PEM is expected"),
        "a key that is cut off": ({KEY: str(cut_key)}, f"{pair} {cut_key}: PEM is expected"),
        "an authority that is text": ({CLIENT_CA: str(text)}, f"tls: cannot use {text}: PEM is expected"),
        "an authority that is empty": ({CLIENT_CA: str(empty)}, f"tls: cannot use {empty}: PEM is expected"),
        "an authority that is a key": ({CLIENT_CA: str(pki.key)}, f"tls: cannot use {pki.key}: PEM is expected"),
    }


BRIEF: Final = ("a key that is missing", "another certificate's key", "an encrypted key", "an authority that is text")


ALL: Final = pytest.param(None, id="all", marks=pytest.mark.extended)


@pytest.mark.parametrize("cases", [pytest.param(BRIEF, id="brief"), ALL])
def test_files_that_cannot_be_used_end_the_start(
    server: str, pki: Pki, tmp_path: Path, cases: tuple[str, ...] | None, subtests: pytest.Subtests
) -> None:
    for what, (changed, sentence) in wrong(pki).items():
        if cases is None or what in cases:
            with subtests.test(what):
                settings = {**pki.settings(mutual=True), **changed, "OMS_SERVER": server}
                assert_one_sentence(ended("serve", tmp_path, settings), sentence)


@pytest.mark.parametrize("cases", [pytest.param(BRIEF[:2], id="brief"), ALL])
def test_check_finds_what_would_end_the_start(
    pki: Pki, tmp_path: Path, cases: tuple[str, ...] | None, subtests: pytest.Subtests
) -> None:
    for what, (changed, sentence) in wrong(pki).items():
        if cases is None or what in cases:
            with subtests.test(what):
                assert_one_sentence(ended("check", tmp_path, {**pki.settings(mutual=True), **changed}), sentence)
    status, _, errors = ended("check", tmp_path, pki.settings(mutual=True))
    assert (status, errors) == (0, "")


def test_nobody_is_asked_for_a_password(pki: Pki, tmp_path: Path) -> None:
    """A bridge started in a terminal must not wait for a person to type one."""
    settings = {**pki.settings(mutual=False), KEY: str(pki.locked_key)}
    status, shown = in_a_terminal(tmp_path, settings)
    assert status == 1
    assert "pass phrase" not in shown
    assert "the key is encrypted" in shown


@pytest.mark.extended
def test_other_forms_of_pem_can_be_used(server: str, pki: Pki, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for form, (certificate, key) in pki.other_forms().items():
        settings = {CERTIFICATE: str(certificate), KEY: str(key)}
        with (
            subtests.test(form),
            Bridge(tmp_path / form, server=server, settings=settings) as bridge,
            client(bridge, pki.trusting(), http2=True) as talk,
        ):
            assert talk.get("/v1/capabilities").status_code == 200


def test_files_with_a_byte_order_mark_can_be_used(server: str, pki: Pki, tmp_path: Path) -> None:
    settings = pki.settings(mutual=True)
    for variable, file in settings.items():
        settings[variable] = str(pki.file(f"marked-{Path(file).name}", BOM_UTF8 + Path(file).read_bytes()))
    with Bridge(tmp_path, server=server, settings=settings) as bridge:
        with client(bridge, pki.known(), http2=True) as talk:
            assert talk.get("/v1/capabilities").status_code == 200
        with client(bridge, pki.trusting(), http2=True) as talk, pytest.raises(httpx.TransportError):
            talk.get("/v1/capabilities")


def assert_one_sentence(end: tuple[int, str, str], sentence: str) -> None:
    status, output, errors = end
    assert (status, output) == (1, ""), end
    assert errors.startswith(f"Error: {sentence}"), errors
    assert errors.count("\n") == 1, errors


def in_a_terminal(directory: Path, settings: Mapping[str, str]) -> tuple[int, str]:
    """Serve with its own terminal: the exit status, and what the terminal shows."""
    spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    done = _run([sys.executable, "-c", spawn, PROGRAM, "serve"], directory, settings)
    return done.returncode, done.stdout


def _run(command: list[str], directory: Path, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    environ |= {"OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0", **settings}
    return subprocess.run(
        command,
        env=environ,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
        start_new_session=True,  # without the terminal of the tests
    )
