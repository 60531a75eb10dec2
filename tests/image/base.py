"""The base image: a Debian made on this machine, without Python, as a tar in the cache; made once."""

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, Missing, filling
from tests.image import packages

RELEASE: Final = "bookworm"
TAR: Final = CACHE / f"image-base-{RELEASE}-1.tar"
_TRUSTED: Final = Path("/usr/local/share/ca-certificates")
"""The authorities that this machine trusts beside the public ones; what an image is built from may come by them."""


@functools.cache
def tar() -> Path:
    """Return the tar, after debootstrap has made it if need be; Missing if it cannot."""
    root = packages.unpacked()
    with filling():
        if not TAR.exists():
            _make(root)
    return TAR


def _make(tools: Path) -> None:
    if os.geteuid():
        raise Missing("debootstrap, which makes the base image, needs root")
    folder, partial = CACHE / "base.partial", TAR.with_suffix(".partial")
    shutil.rmtree(folder, ignore_errors=True)
    mirror = packages.mirrors(RELEASE)[0].split()[-3]
    script = tools / "usr/sbin/debootstrap"
    what = ("--variant=minbase", "--include=ca-certificates", RELEASE)
    _run(script, *what, folder, mirror, DEBOOTSTRAP_DIR=str(tools / "usr/share/debootstrap"))
    for authority in _TRUSTED.glob("*.crt"):
        shutil.copy(authority, folder / str(_TRUSTED).lstrip("/"))
    _run("chroot", folder, "update-ca-certificates")
    _run("tar", "-C", folder, "--exclude=./var/cache/apt/archives/*.deb", "-cf", partial, ".")
    partial.rename(TAR)
    shutil.rmtree(folder)


def _run(*command: str | Path, **more: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"{command[0]} could not make the base image: {(done.stdout + done.stderr)[-2000:]}")
