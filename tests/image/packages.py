"""Docker, debootstrap and compose from Debian's packages, unpacked into the cache: nothing is installed."""

import functools
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, Missing, filling

HOME: Final = CACHE / "docker-bookworm-1"
SECONDS: Final = 300.0
"""For the lists of packages, and again for the packages (80 MB)."""
_NEWER: Final = "trixie"
"""Has compose v2, whose one program runs on older releases too."""
_PACKAGES: Final = ("containerd", "debootstrap", "docker.io", "iptables", "runc")
_LIBRARIES: Final = ("libdevmapper", "libip", "libmnl", "libnetfilter", "libnfnetlink", "libnftnl", "libxtables")
"""What a machine without these packages lacks beside them."""


@functools.cache
def unpacked() -> Path:
    """Return the folder that is their root, after apt-get has fetched them if need be; Missing if it cannot."""
    with filling():
        if not HOME.exists():
            _fill()
    return HOME


@functools.cache
def mirrors(release: str) -> list[str]:
    """Return lines for sources.list that name a release at the mirrors that this machine uses; Missing if none."""
    fields = "$(RELEASE) $(COMPONENT) $(REPO_URI) $(SIGNED_BY)"
    rows = {row.strip() for row in _apt({}, "indextargets", "--format", fields, "Created-By: Packages").splitlines()}
    found = [row.split(maxsplit=3) for row in sorted(rows) if row.startswith("bookworm main ")]
    if not found:
        raise Missing("this is not Debian 12, whose packages it would be made of")
    signed = [(place, f"[signed-by={key}] " if key.startswith("/") else "") for _, _, place, key in found]
    return [f"deb {by}{place} {release} main" for place, by in signed]


def _fill() -> None:
    partial = CACHE / "docker.partial"
    shutil.rmtree(partial, ignore_errors=True)
    own = fetched(partial / "own", "bookworm", *_PACKAGES)
    newer = fetched(partial / "newer", _NEWER, "docker-compose")
    for archive in [*own, *newer]:
        name = archive.name.partition("_")[0]
        if name in _PACKAGES or name == "docker-compose" or (archive in own and name.startswith(_LIBRARIES)):
            subprocess.run(["dpkg-deb", "--extract", archive, partial / "root"], check=True)
    for program in "iptables", "ip6tables":  # by which names within a network of Docker are found
        (partial / "root/usr/sbin" / program).symlink_to(f"{program}-nft")
    (partial / "root").rename(HOME)
    shutil.rmtree(partial)


def fetched(folder: Path, release: str, *names: str) -> list[Path]:
    """Fetch packages with all that they need, whatever is installed: lists and status are those of `folder`."""
    for each in "lists/partial", "archives/partial":
        (folder / each).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text("\n".join([*mirrors(release), ""]), "utf-8")
    options = {
        "Dir::State": str(folder),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder),
        "Dir::Etc::sourcelist": str(folder / "sources.list"),
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "root",  # another could not write here
        "Acquire::Languages": "none",
    }
    _apt(options, "update")
    _apt(options, "install", "--yes", "--no-install-recommends", "--download-only", *names)
    return sorted((folder / "archives").glob("*.deb"))


def _apt(options: Mapping[str, str], *arguments: str) -> str:
    given = [f"--option={name}={value}" for name, value in options.items()]
    command = ["apt-get", "--quiet=2", *given, *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as failure:
        raise Missing(f"apt-get could not fetch its packages: {failure}") from None
    if done.returncode:
        raise Missing(f"apt-get could not fetch its packages: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
