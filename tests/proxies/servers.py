"""nginx and HAProxy as Debian packages them, each with a folder and a port that no other program has."""

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.ports import held_port
from tests.trouble import PATIENCE

NGINX: Final = """
daemon off;
user {user};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
{settings}
    }}
}}
"""
"""What is set has no other effect than that it needs no root and touches nothing of the machine."""
NGINX_DEFAULT: Final = "location / {{ proxy_pass {bridge}; }}"
HAPROXY: Final = """
global
    log stderr format raw local0
defaults
    mode http
{settings}
frontend data
    bind 127.0.0.1:{port}
    default_backend bridge
backend bridge
    server bridge {address}
"""
HAPROXY_DEFAULT: Final = """
    timeout connect 5000
    timeout client 50000
    timeout server 50000
"""
"""The timeouts of Debian's haproxy.cfg; HAProxy itself has none, and warns."""
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin"


def found(program: str) -> str:
    """Return the path of a program; without it the test is skipped, and in CI it fails."""
    path = shutil.which(program, path=_PATH)
    if path is None:
        needs = "needs nginx and HAProxy: apt-get install nginx-light haproxy"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(needs)
    return path


@contextmanager
def nginx(folder: Path, bridge: str, settings: str = NGINX_DEFAULT) -> Iterator[str]:
    """Run nginx with these settings of its server; yields its URL."""
    program = found("nginx")
    folder.mkdir(parents=True)
    config = folder / "nginx.conf"
    command = [program, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
    with held_port() as port:
        given = settings.format(bridge=bridge)
        config.write_text(NGINX.format(user=getpass.getuser(), folder=folder, port=port, settings=given), "utf-8")
        with _running(command, folder, port) as url:
            yield url


@contextmanager
def haproxy(folder: Path, bridge: str, settings: str = HAPROXY_DEFAULT) -> Iterator[str]:
    """Run HAProxy with these settings of its defaults; yields its URL."""
    program = found("haproxy")
    folder.mkdir(parents=True)
    config = folder / "haproxy.cfg"
    with held_port() as port:
        config.write_text(HAPROXY.format(port=port, address=bridge.partition("://")[2], settings=settings), "utf-8")
        with _running([program, "-db", "-f", str(config)], folder, port) as url:
            yield url


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[str]:
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _answers(port):
            assert process.poll() is None, (folder / "output.txt").read_text("utf-8")
            assert time.monotonic() < deadline, "the proxy does not answer"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/v1/capabilities")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
