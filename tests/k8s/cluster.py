"""A Kubernetes: that of KUBECONFIG, else one whose programs are built once, and which ends with the tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.brokers.cache import Missing
from tests.brokers.process import Process
from tests.helm import program
from tests.image import cgroups, packages
from tests.k8s import images, node, programs

START_SECONDS: Final = 240.0
SECONDS: Final = 240.0
"""For what a cluster is asked for, on a machine with other load."""


class Cluster:
    """Its command lines. Those of a cluster of our own run inside its namespaces."""

    def __init__(self, environment: Mapping[str, str], inside: Sequence[str] = (), folder: Path | None = None) -> None:
        """`inside`: a command before each command. `folder`: of a cluster of our own."""
        self.environment = {**os.environ, **environment}
        self.inside = inside
        self.folder = folder

    def run(self, *command: str | Path, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command where the cluster is, its output and errors in one text."""
        return subprocess.run(
            [*self.inside, *command], env=self.environment, input=given, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

    def __call__(self, *command: str | Path, given: str = "") -> str:
        """Return what a command prints; AssertionError with it if the command fails."""
        done = self.run(*command, given=given)
        assert not done.returncode, f"{' '.join(map(str, command))}\n{done.stdout}"
        return done.stdout

    def load(self, archive: Path) -> None:
        """Import images; a given cluster has them already."""
        if self.folder is not None:
            self("ctr", "-a", f"{self.folder}/containerd.sock", "-n", "k8s.io", "images", "import", archive)


class Namespace:
    """A namespace of Kubernetes."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def kubectl(self, *arguments: str | Path, given: str = "") -> str:
        """Return what kubectl prints; AssertionError if it fails."""
        return self.cluster("kubectl", f"--namespace={self.name}", *arguments, given=given)

    def helm(self, *arguments: str | Path, given: str = "") -> str:
        """Return what helm prints; AssertionError if it fails."""
        return self.cluster(program.helm(), f"--namespace={self.name}", *arguments, given=given)

    def apply(self, *manifests: str) -> None:
        """Create or change what texts of YAML describe."""
        self.kubectl("apply", "--filename=-", given="\n---\n".join(manifests))

    def get(self, *what: str) -> Any:  # noqa: ANN401 - Kubernetes' own documents
        """Return a document."""
        return json.loads(self.kubectl("get", *what, "--output=json"))

    def pods(self, selector: str) -> list[Any]:
        """Return the pods that are not ending."""
        found = self.get("pods", f"--selector={selector}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def kill(self, pod: str) -> None:
        """End the only container of a pod with SIGKILL; in a given cluster, the pod at once."""
        if (folder := self.cluster.folder) is None:
            self.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
            return
        [status] = self.get("pod", pod)["status"]["containerStatuses"]
        task = status["containerID"].removeprefix("containerd://")
        control = ("ctr", "-a", f"{folder}/containerd.sock", "-n", "k8s.io", "tasks", "kill", "--signal=SIGKILL", task)
        self.cluster(*control)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds; AssertionError with what runs if it does not come."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.kubectl("get", "pods,events")
            time.sleep(0.5)


@contextmanager
def running() -> Iterator[Cluster]:
    """Yield a cluster; Missing if there is none and none can be started."""
    if os.environ.get("KUBECONFIG"):
        yield Cluster({})
        return
    if os.geteuid():
        raise Missing("only root can start a Kubernetes, and KUBECONFIG names none")
    packages.unpacked()
    archives = [images.of_program("pause"), images.of_program("coredns"), images.saved("bridge")]
    folder = Path(tempfile.mkdtemp(prefix="oms-k8s-"))  # short: the path of a socket has at most 107 characters
    first = _start(folder)
    try:
        environment = node.environment() | {"KUBECONFIG": f"{folder}/admin.conf"}
        inside = ["nsenter", f"--target={_child(first.pid)}", "--net", "--mount", "--pid", f"--wd={programs.HOME}"]
        cluster = Cluster(environment, inside, folder)
        _wait((folder / "up").exists, first, folder)
        for archive in archives:
            cluster.load(archive)
        cluster("kubectl", "wait", "--for=create", "node/node1", f"--timeout={SECONDS}s")
        cluster("kubectl", "wait", "--for=condition=Ready", "node/node1", f"--timeout={SECONDS}s")
        yield cluster
    finally:
        with suppress(ProcessLookupError):
            os.kill(_child(first.pid), signal.SIGKILL)
        first.wait(SECONDS)
        cgroups.remove(folder.name)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> Process:
    space = "unshare --net --mount --pid --fork --mount-proc --kill-child"
    root = Path(__file__).parents[2]
    return Process(f"cd {root} && exec {space} {sys.executable} -m tests.k8s.node {folder}", folder / "node.log")


def _child(parent: int) -> int:
    """Return the first process inside, which has the number 1 there."""
    deadline = time.monotonic() + SECONDS
    while not (found := Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(found[0])


def _wait(condition: Callable[[], object], first: Process, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline or not first.alive:
            raise Missing(f"Kubernetes did not start: {(folder / 'node.log').read_text('utf-8')[-2000:]}")
        time.sleep(0.2)
