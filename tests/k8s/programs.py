"""Kubernetes' own programs, built by Go from the published modules into the cache, once per machine (20 minutes)."""

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, filling, go, program
from tests.image import packages

VERSION: Final = "1.35.4"
HOME: Final = CACHE / f"kubernetes-{VERSION}-1"
_MODULES: Final = (
    "github.com/coredns/coredns@v1.12.4",
    "github.com/cloudnativelabs/kube-router/v2@v2.1.0",  # NetworkPolicies; it has known flaws
)
_PROGRAMS: Final = {
    **{
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    },
    "etcd": "go.etcd.io/etcd/server/v3",
    "pause": "./pause.go",
    "coredns": "./coredns.go",
    "kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
}
"""Program → package."""
_METRICS: Final = "sigs.k8s.io/metrics-server/cmd/metrics-server"
_METRICS_VERSION: Final = "0.8.0"
_PACKAGES: Final = ("containernetworking-plugins", "ipset", "nftables", "conntrack")
_LIBRARIES: Final = ("libbsd", "libedit", "libgmp", "libips", "libjansson", "libmd", "libnetf", "libnfn", "libnft")


@functools.cache
def home() -> Path:
    """Return the folder with `bin` and `root`, after all is built if need be; Missing if it cannot be."""
    with filling("kubernetes.lock"):  # others fetch their parts meanwhile
        if not HOME.exists():
            _fill(CACHE / "kubernetes.partial")
    return HOME


@functools.cache
def metrics_server() -> Path:
    """Return metrics-server, built in a separate module: it requires another Kubernetes. Missing if it cannot be."""

    def make(folder: Path) -> Path:
        _go("mod", "init", "metrics", folder=folder)
        _go("get", "-tool", f"{_METRICS}@v{_METRICS_VERSION}", folder=folder)
        _go("build", "-o", "metrics-server", _METRICS, folder=folder)
        return folder / "metrics-server"

    return program(f"metrics-server-v{_METRICS_VERSION}", make)


def _fill(partial: Path) -> None:
    """Build what a run that was broken off left to do."""
    programs, root, sources = partial / "bin", partial / "root", partial / "sources"
    for each in (root, sources, partial / "apt"):
        shutil.rmtree(each, ignore_errors=True)
    sources.mkdir(parents=True)
    programs.mkdir(exist_ok=True)
    _module(sources)
    named, minor = "-X k8s.io/component-base/version.git", VERSION.split(".")[1]
    version = f"{named}Version=v{VERSION} {named}Major=1 {named}Minor={minor} {named}TreeState=clean"
    for name, package in _PROGRAMS.items():
        if not (programs / name).exists():
            _go("build", "-o", str(programs / name), f"-ldflags=-s -w {version}", package, folder=sources)
    for archive in packages.fetched(partial / "apt", "bookworm", *_PACKAGES):
        name = archive.name.partition("_")[0]
        if name in _PACKAGES or name.startswith(_LIBRARIES):
            subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    for rest in set(partial.iterdir()) - {programs, root}:
        shutil.rmtree(rest)
    partial.rename(HOME)


def _module(folder: Path) -> None:
    """Make one module that requires all: most of the packages are the same, and are compiled once.

    Kubernetes' own module names its parts by folders of its repository; they are published as modules, too.
    """
    _go("mod", "init", "cluster", folder=folder)
    _go("mod", "download", f"k8s.io/kubernetes@v{VERSION}", folder=folder)
    cached = Path(_go("env", "GOMODCACHE", folder=folder).strip(), "cache/download/k8s.io/kubernetes/@v")
    theirs = (cached / f"v{VERSION}.mod").read_text("utf-8").replace("module k8s.io/kubernetes", "module cluster")
    ours = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 v0.{VERSION.partition('.')[2]}", theirs)
    (folder / "go.mod").write_text(ours, "utf-8")
    _go("get", f"k8s.io/kubernetes@v{VERSION}", *_MODULES, folder=folder)
    shutil.copytree(Path(__file__).with_name("go"), folder, dirs_exist_ok=True)


def _go(*arguments: str, folder: Path) -> str:
    return go(*arguments, folder=folder, more={"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false -trimpath"})
