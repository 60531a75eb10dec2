"""A PostgreSQL of one test: in a separate directory, without a port."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PATIENCE: Final = 60.0
PACKAGED: Final = Path("/usr/lib/postgresql")
"""Debian's and its derivatives'."""
_USER: Final = "nobody"
"""Who runs it if root runs the tests: PostgreSQL refuses root."""


def programs() -> Path | None:
    """Return the folder of an installation's programs, which Debian does not put on the PATH; None: there is none."""
    installed = shutil.which("postgres")
    packaged = sorted(PACKAGED.glob("*/bin/postgres"))
    return Path(installed).resolve().parent if installed else packaged[-1].parent if packaged else None


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Run a server with the empty database `orders`; yield the variables by which its clients find it."""
    folder = programs()
    assert folder is not None, "PostgreSQL is missing: apt-get install postgresql"
    directory = tempfile.mkdtemp(prefix="oms-postgres-")  # pytest's is closed to other users
    user = _USER if os.geteuid() == 0 else None
    group = None if user is None else pwd.getpwnam(user).pw_gid
    try:
        if user is not None:
            shutil.chown(directory, user)
        data = f"{directory}/data"
        initialize = [str(folder / "initdb"), "--no-sync", "--auth=trust", "--username=orders", data]
        subprocess.run(initialize, check=True, capture_output=True, timeout=PATIENCE, user=user, group=group)
        serve = [str(folder / "postgres"), "-D", data, "-k", directory, "-c", "listen_addresses="]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, group=group)
        try:
            environ = {"PGHOST": directory, "PGUSER": "orders"}
            _create(folder, environ)
            yield environ
        finally:
            server.terminate()
            server.wait(PATIENCE)
    finally:
        shutil.rmtree(directory)


def _create(folder: Path, environ: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        command = [str(folder / "createdb"), "orders"]
        done = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.1)
