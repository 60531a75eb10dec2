"""What the tests need beside Python: whether this machine has it, and how to get it.

`python -m tests.brokers.preflight` prints a sentence for each part that is missing, and exits with 1 if there is one;
with `--all` also for the parts that only `make test-all` needs, with `--table` it prints the table of the README. It
runs before the environment is built, so it imports only the standard library and modules that do the same. It starts
no program and uses no network: it must answer within a moment.
"""

import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.brokers import jars, packages, postgres
from tests.brokers.cache import CACHE

JAVA: Final = 17
_SECONDS: Final = 0.1
"""To connect to a local Docker daemon."""
_SBIN: Final = "/usr/sbin"
"""Where Debian has servers, and no user a PATH to them."""
_GO: Final = "/usr/local/go/bin"
"""Where Go's own installation is, on the PATH or not."""
_CARGO: Final = str(Path.home() / ".cargo/bin")
"""Where rustup puts it, on the PATH or not."""
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
"""What `tests/browser/chromium.py` looks for."""


class Part(NamedTuple):
    """Something that tests need."""

    name: str
    tests: str
    """What the tests are about that need it."""
    needs: str
    """The programs that make it available."""
    get: str
    """How to get it."""
    found: Callable[[], bool]
    extended: bool = False
    """Whether only `make test-all` needs it."""


def java(home: str | None = None) -> int:
    """Return the version of the Java on the PATH, or in `home`, by its folder's file `release`; 0: there is none."""
    program = shutil.which("java", path=f"{home}/bin" if home else None)
    if program is None:
        return 0
    try:
        said = (Path(program).resolve().parents[1] / "release").read_text("utf-8")
    except OSError:
        return JAVA  # its version is not known without starting it: let the tests try it
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', said, re.MULTILINE)
    return int(version[1]) if version else JAVA


def docker() -> bool:
    """Whether there is a docker program with a daemon that accepts connections. Whether it has images is not asked."""
    if shutil.which("docker") is None:
        return False
    named = urlsplit(os.environ.get("DOCKER_HOST", ""))
    if named.scheme in {"tcp", "ssh"}:
        return True  # another machine: asking it could take longer than we may
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    usual = ["/var/run/docker.sock", f"{runtime}/docker.sock", str(Path.home() / ".docker/run/docker.sock")]
    return any(map(_accepts, [named.path] if named.path else usual))


def kafka() -> bool:
    """Whether tests can start a Kafka."""
    return docker() or (java() >= JAVA and (jars.home().exists() or shutil.which("mvn") is not None))


def rabbitmq() -> bool:
    """Whether tests can start a RabbitMQ."""
    if docker() or packages.installed() is not None:
        return True
    codename = packages.codename()
    if codename is None:
        return False
    return (CACHE / f"rabbitmq-{codename}").exists() or all(map(shutil.which, ("apt-get", "dpkg-deb")))


def go() -> bool:
    """Whether Go is where the tests look for it."""
    return shutil.which("go", path=f"{os.environ.get('PATH', '')}:{_GO}") is not None


def helm() -> bool:
    """Whether there is a helm, or the means to build one."""
    return shutil.which("helm") is not None or any((CACHE / "bin").glob("helm-*")) or go()


def promtool() -> bool:
    """Whether there is a promtool, or the means to fetch it."""
    if shutil.which("promtool") is not None or any((CACHE / "bin").glob("promtool-*")):
        return True
    return packages.codename() is not None and all(map(shutil.which, ("apt-get", "dpkg-deb")))


def proxies() -> bool:
    """Whether there are the proxies that no package of Python has."""
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    return all(shutil.which(program, path=path) for program in ("nginx", "haproxy"))


def kubernetes() -> bool:
    """Whether tests can use or start a Kubernetes."""
    if os.environ.get("KUBECONFIG"):
        return shutil.which("kubectl") is not None
    return os.geteuid() == 0 and packages.codename() == "bookworm" and go()


def images() -> bool:
    """Whether tests can build and run images."""
    return docker() or (os.geteuid() == 0 and packages.codename() == "bookworm")


PARTS: Final[Sequence[Part]] = (
    Part(
        "Kafka",
        "the Kafka backend",
        f"Java {JAVA} or newer with Maven, which fetches Kafka's jars once, or a running Docker",
        f"`apt-get install openjdk-{JAVA}-jre-headless maven`, or start Docker",
        kafka,
    ),
    Part(
        "RabbitMQ",
        "the RabbitMQ backend",
        "its package, or Debian's `apt-get`, which fetches it once without installing it, or a running Docker",
        "`apt-get install rabbitmq-server`, or start Docker",
        rabbitmq,
    ),
    Part(
        "Java",
        "the mirror (Spark)",
        f"Java {JAVA} or newer",
        f"`apt-get install openjdk-{JAVA}-jre-headless`",
        lambda: java(os.environ.get("JAVA_HOME")) >= JAVA,
    ),
    Part(
        "helm",
        "the charts",
        "helm, or Go, which builds it once",
        "install helm (helm.sh/docs/intro/install), or Go (go.dev/dl)",
        helm,
    ),
    Part(
        "promtool",
        "the metrics and the alerts",
        "Prometheus' promtool, or Debian's `apt-get`, which fetches it once without installing it",
        "`apt-get install prometheus`",
        promtool,
    ),
    Part(
        "Chromium",
        "the client in a browser",
        "Chromium or Chrome",
        "`apt-get install chromium`",
        lambda: any(map(shutil.which, _BROWSERS)),
    ),
    Part(
        "curl",
        "the commands of the documents",
        "curl with HTTP/2, and jq",
        "`apt-get install curl jq`",
        lambda: all(map(shutil.which, ("curl", "jq"))),
    ),
    Part(
        "Proxies",
        "the page about proxies",
        "nginx and HAProxy",
        "`apt-get install nginx haproxy`",
        proxies,
    ),
    Part(
        "Go",
        "h2spec, an S3 server, and a Go program of the migration pages",
        "Go 1.24 or newer",
        "install Go (go.dev/dl)",
        go,
    ),
    Part(
        "Node",
        "the AsyncAPI document, and programs of the page of other clients",
        "Node 20 or newer with npm, which fetches the validator once",
        "install Node (nodejs.org)",
        lambda: all(map(shutil.which, ("node", "npm"))),
        extended=True,
    ),
    Part(
        "Rust",
        "a program of the page of other clients",
        "Rust with cargo",
        "install Rust (rustup.rs)",
        lambda: shutil.which("cargo", path=f"{os.environ.get('PATH', '')}:{_CARGO}") is not None,
        extended=True,
    ),
    Part(
        "PostgreSQL",
        "the page of transactions",
        "PostgreSQL's server",
        "`apt-get install postgresql`",
        lambda: postgres.programs() is not None,
        extended=True,
    ),
    Part(
        "Docker",
        "the images",
        "a running Docker with BuildKit, or root on Debian 12, where the tests start a Docker of their own",
        "start Docker",
        images,
        extended=True,
    ),
    Part(
        "Kubernetes",
        "the charts on a cluster (`make test-k8s`)",
        "kubectl with KUBECONFIG, or root on Debian 12 with Go, which builds a Kubernetes once (20 minutes)",
        "set KUBECONFIG, or install Go (go.dev/dl)",
        kubernetes,
        extended=True,
    ),
)


def missing(*, extended: bool = False) -> list[str]:
    """Return a sentence for each part that this machine lacks: what it is, which tests need it, how to get it.

    `extended`: also the parts that only `make test-all` needs.
    """
    return [
        f"{part.name} is missing: the tests of {part.tests} need {part.needs} ({part.get})."
        for part in PARTS
        if (extended or not part.extended) and not part.found()
    ]


def table() -> str:
    """Return the parts as a table in Markdown."""
    rows = [
        ["Part", "Needed by the tests of", "Taken from", "Get it", "Runs in"],
        ["---"] * 5,
        *(
            [each.name, each.tests, each.needs, each.get, "`make test-all`" if each.extended else "`make test`"]
            for each in PARTS
        ),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _accepts(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_SECONDS)
        try:
            client.connect(path)
        except OSError:
            return False
    return True


if __name__ == "__main__":
    if "--table" in sys.argv:
        sys.stdout.write(table())
        sys.exit()
    sys.exit("\n".join(missing(extended="--all" in sys.argv)) or None)
