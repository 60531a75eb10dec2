"""One upkeep at a time: who is at work says so in a file, and leaves if another has.

Two compactions of the same files would end in their rows twice, a compaction beside a prune in pruned rows that are
back. A claim is its own file, not one that is created exclusively: that is atomic on some filesystems only, while
everywhere what was written before a listing is in it. Two that come at the very same moment may both leave.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from uuid_utils import uuid7

from bridge.errors import CannotStart
from bridge.mirror import layout
from bridge.mirror.sink.files import Files

"""The folder of claims under `--out`."""
LEASE: Final = 900
"""Seconds after which a claim that was not renewed is nobody's, by the clocks of the machines."""
_RENEW: Final = 60


class Owner(NamedTuple):
    """Who is at work."""

    host: str
    pid: int
    place: str
    """Where the pid means something: the boot and the namespace; empty: not known."""
    seen: float
    """Seconds since 1970."""


class Claim:
    """What the owner of a mirror's upkeep holds."""

    def __init__(self, files: Files) -> None:
        self.id = str(uuid7())
        self._files = files
        self._path = f"{layout.UPKEEP}/{self.id}.json"
        self._seen = 0.0
        self._lost = False

    def renew(self) -> None:
        """Say that it is still at work, unless others took it for dead. Raises `OSError`."""
        seen = time.time()
        self._lost = self._lost or (self._seen > 0 and not self._files.exists(self._path))
        if self._lost:
            return
        owner = Owner(socket.gethostname(), os.getpid(), _place(), seen)
        self._files.write(self._path, json.dumps(owner._asdict()))
        self._seen = seen

    def check(self) -> None:
        """Raise `CannotStart` if others may take it for dead; asked before each commit."""
        if self._lost or time.time() - self._seen > LEASE / 2 or not self._files.exists(self._path):
            raise CannotStart("This upkeep was taken for dead, so it stops before its next change. Run it again.")

    def others(self) -> Iterator[Owner]:
        """Yield who else is at work; the claims of the dead are removed."""
        for path, _ in self._files.list(layout.UPKEEP):
            text = None if path == self._path else self._files.read(path)
            if text is None:
                continue
            owner = _owner(text, path)
            if _dead(owner, time.time()):
                self._files.delete(path)
            else:
                yield owner

    def release(self) -> None:
        """Leave."""
        self._files.delete(self._path)


@contextmanager
def claimed(files: Files) -> Iterator[Claim]:
    """Be the only one at work until the block ends. Raises `CannotStart` if there is another, or no mirror."""
    if not files.exists(layout.MANIFESTS):
        raise CannotStart(f"There is no mirror in {files.out}.")
    claim = Claim(files)
    claim.renew()
    over = threading.Event()

    def renewing() -> None:
        while not over.wait(_RENEW):
            with suppress(OSError):  # seen by `check` if it goes on
                claim.renew()

    thread = threading.Thread(target=renewing, name="oms-upkeep-claim", daemon=True)
    try:
        for owner in claim.others():
            raise CannotStart(
                f"Another compaction or prune is at work on this mirror: process {owner.pid} on {owner.host}. "
                "Only one may be; run this again when it has ended."
            )
        thread.start()
        yield claim
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
        claim.release()


def _owner(text: str, path: str) -> Owner:
    try:
        return Owner(**json.loads(text))
    except (ValueError, TypeError):
        raise CannotStart(f"{path} in this mirror is no claim of an upkeep. If nobody is at work, delete it.") from None


def _dead(owner: Owner, now: float) -> bool:
    if now - owner.seen > LEASE:
        return True
    return bool(owner.place) and owner.place == _place() and not _alive(owner.pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _place() -> str:
    """Return what two processes share that see each other's pids: containers may share a host's name and not these."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
