"""RabbitMQ and its Erlang from Debian's packages, unpacked into the cache; filled once per machine and release.

Nothing is installed: no root is needed, no user, service or epmd comes to the machine, and a release that is not the
machine's own runs beside it, with the libraries that it was made with.
"""

import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, Missing

PACKAGED: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Of Debian and its derivatives. The programs on PATH need root, and change the user."""
SECONDS: Final = 300.0
"""For the lists of packages, and again for the packages (60 MB)."""
_REMEDY: Final = (
    "A signature that cannot be verified: apt-get install --only-upgrade debian-archive-keyring. A file that is "
    "missing or has an unexpected size: the mirror is being updated, as sid's is four times a day; run the tests "
    "again in some minutes. A release that is not found: the mirrors of /etc/apt do not have it"
)
"""What to do if apt-get fails, which most often happens with a release that is not the machine's own."""
_NEEDED: Final = ("rabbitmq-server_", "erlang-", "lib", "zlib")
"""The others, such as Perl and Python, are for installing it."""
_PROGRAM: Final = """#!/bin/sh
exec {loader} --library-path {libraries} --argv0 "$0" {program} "$@"
"""


def installed() -> Path | None:
    """Return the folder of the programs of an installed RabbitMQ; None if there is none."""
    for server in PACKAGED, shutil.which("rabbitmq-server"):
        if server and Path(server).exists():
            return Path(server).parent
    return None


def codename() -> str | None:
    """Return the name of this machine's release, such as bookworm; None if it is not Debian or a derivative."""
    try:
        return platform.freedesktop_os_release()["VERSION_CODENAME"]
    except (OSError, KeyError):
        return None


def unpacked(release: str | None) -> Path:
    """Return the folder that is their root, after apt-get has fetched them if need be; Missing if it cannot.

    `release`: a name such as trixie; None: this machine's own.
    """
    home = CACHE / f"rabbitmq-{release or _own()}"
    if not home.exists():
        partial = CACHE / "rabbitmq.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for archive in fetched(partial / "apt", "rabbitmq-server", release):
            if archive.name.startswith(_NEEDED):
                subprocess.run(["dpkg-deb", "--extract", archive, partial / "root"], check=True)
        _settle(partial / "root", home)
        (partial / "root").rename(home)
        shutil.rmtree(partial)
    return home


def fetched(folder: Path, package: str, release: str | None = None) -> list[Path]:
    """Fetch a package with all that it needs, whatever is installed: lists and status are those of `folder`.

    Missing if it cannot be fetched. `release`: as for `unpacked`.
    """
    for each in "lists/partial", "archives/partial":
        (folder / each).mkdir(parents=True)
    (folder / "status").touch()
    options = {
        "Dir::State": str(folder),
        "Dir::State::status": str(folder / "status"),
        "Dir::Cache": str(folder),
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "root",  # another could not write here
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    if release is not None:
        (folder / "sources.list").write_text(_sources(release), "utf-8")
        options |= {"Dir::Etc::sourcelist": str(folder / "sources.list"), "Dir::Etc::sourceparts": "/dev/null"}
        options |= {"Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null"}
    _apt(options, "update")
    _apt(options, "install", "--yes", "--no-install-recommends", "--download-only", package)
    return sorted((folder / "archives").glob("*.deb"))


def _own() -> str:
    name = codename()
    if name is None:
        raise Missing("it is not installed, and this is not Debian or its like")
    return name


def _sources(release: str) -> str:
    """Return lines that name another release at the mirrors that this machine uses."""
    fields = "$(RELEASE) $(COMPONENT) $(REPO_URI) $(SIGNED_BY)"
    rows = {row.strip() for row in _apt({}, "indextargets", "--format", fields, "Created-By: Packages").splitlines()}
    found = [row.split(maxsplit=3) for row in sorted(rows) if row.startswith(f"{_own()} main ")]
    signed = [(place, f"[signed-by={key}] " if key.startswith("/") else "") for _, _, place, key in found]
    return "".join(f"deb {by}{place} {release} main\n" for place, by in signed)


def _apt(options: Mapping[str, str], *arguments: str) -> str:
    given = [f"--option={name}={value}" for name, value in options.items()]
    command = ["apt-get", "--quiet=2", *given, *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as failure:
        raise Missing(f"it is not installed, and apt-get could not fetch it: {failure}") from None
    if done.returncode:
        raise Missing(f"apt-get could not fetch it: {(done.stdout + done.stderr).strip()[-2000:]}\n{_REMEDY}")
    return done.stdout


def _settle(root: Path, home: Path) -> None:
    """Let the programs run from `home`, where `root` will be, with the C library that came with them."""
    [loader] = [each for each in root.glob("**/ld-linux*.so.*") if not each.is_symlink()]
    folders = [each for place in ("lib", "usr/lib") for each in (root / place).glob("*-linux-gnu*")]
    libraries = ":".join(str(home / each.relative_to(root)) for each in folders)
    for program in list(filter(_is_program, (root / "usr/lib/erlang").glob("**/bin/*"))):
        moved = program.rename(program.with_name(f".{program.name}"))
        places = {"loader": loader, "program": moved}
        words = {name: shlex.quote(str(home / place.relative_to(root))) for name, place in places.items()}
        program.write_text(_PROGRAM.format(libraries=shlex.quote(libraries), **words), "utf-8")
        program.chmod(0o755)
    erl = root / "usr/lib/erlang/bin/erl"
    erl.write_text(erl.read_text("utf-8").replace("=/usr/lib/erlang", f"={shlex.quote(str(home / 'usr/lib/erlang'))}"))


def _is_program(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and file.read_bytes().startswith(b"\x7fELF")
