"""Kubernetes' own programs, built by Go from the published modules into the cache, once per machine (20 minutes)."""

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, filling, go
from tests.image import packages

VERSION: Final = "1.35.4"
HOME: Final = CACHE / f"kubernetes-{VERSION}-1"
_KUBERNETES: Final = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"),
)
_OTHERS: Final = (
    "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0",  # NetworkPolicies; it has known flaws
    "sigs.k8s.io/metrics-server/cmd/metrics-server@v0.8.0",  # what a HorizontalPodAutoscaler reads
)
_PACKAGES: Final = ("containernetworking-plugins", "ipset", "nftables", "conntrack")
_LIBRARIES: Final = ("libbsd", "libedit", "libgmp", "libips", "libjansson", "libmd", "libnetf", "libnfn", "libnft")
_COREDNS: Final = "v1.12.4"
_STRIPPED: Final = "-ldflags=-s -w"


@functools.cache
def home() -> Path:
    """Return the folder with `bin` and `root`, after all is built if need be; Missing if it cannot be."""
    with filling("kubernetes.lock"):  # others fetch their parts meanwhile
        if not HOME.exists():
            _fill(CACHE / "kubernetes.partial")
    return HOME


def _fill(partial: Path) -> None:
    """Build what a run that was broken off left to do."""
    programs, root = partial / "bin", partial / "root"
    programs.mkdir(parents=True, exist_ok=True)
    _kubernetes(partial / "kubernetes", programs)
    _program(partial / "pause", programs)
    _program(partial / "coredns", programs, f"github.com/coredns/coredns@{_COREDNS}")
    for package in _OTHERS:
        if not (programs / package.rpartition("/")[2].partition("@")[0]).exists():
            _go("install", _STRIPPED, package, folder=programs)
    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(partial / "apt", ignore_errors=True)
    for archive in packages.fetched(partial / "apt", "bookworm", *_PACKAGES):
        name = archive.name.partition("_")[0]
        if name in _PACKAGES or name.startswith(_LIBRARIES):
            subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    for rest in set(partial.iterdir()) - {programs, root}:
        shutil.rmtree(rest)
    partial.rename(HOME)


def _kubernetes(folder: Path, programs: Path) -> None:
    """Build it in a module that requires Kubernetes with the published versions of the modules that it is made of."""
    if (programs / "etcd").exists():
        return
    _module(folder)
    _go("mod", "download", f"k8s.io/kubernetes@v{VERSION}", folder=folder)
    cached = Path(_go("env", "GOMODCACHE", folder=folder).strip(), "cache/download/k8s.io/kubernetes/@v")
    theirs = (cached / f"v{VERSION}.mod").read_text("utf-8").replace("module k8s.io/kubernetes", "module kubernetes")
    ours = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 v0.{VERSION.partition('.')[2]}", theirs)
    (folder / "go.mod").write_text(ours, "utf-8")
    _go("mod", "edit", f"-require=k8s.io/kubernetes@v{VERSION}", folder=folder)
    named, minor = "-X k8s.io/component-base/version.git", VERSION.split(".")[1]
    version = f"{named}Version=v{VERSION} {named}Major=1 {named}Minor={minor} {named}TreeState=clean"
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES]
    _go("build", "-o", f"{programs}/", f"{_STRIPPED} {version}", *packages, folder=folder)
    _go("build", "-o", str(programs / "etcd"), _STRIPPED, "go.etcd.io/etcd/server/v3", folder=folder)


def _program(folder: Path, programs: Path, *needed: str) -> None:
    """Build a program of `go/`."""
    if not (programs / folder.name).exists():
        _module(folder)
        shutil.copy(Path(__file__).parent / "go" / f"{folder.name}.go", folder)
        for package in needed:
            _go("get", package, folder=folder)
        _go("build", "-o", str(programs / folder.name), _STRIPPED, ".", folder=folder)


def _module(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _go("mod", "init", folder.name, folder=folder)


def _go(*arguments: str, folder: Path) -> str:
    return go(*arguments, folder=folder, more={"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false -trimpath"})
