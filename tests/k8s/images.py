"""The images that the tests' pods run, as archives in the cache: made again when what they are made of changes."""

import functools
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal

import bridge
from tests.brokers.cache import CACHE, filling
from tests.image import base, building
from tests.image.docker import Docker, running
from tests.k8s import programs

FOLDER: Final = CACHE / "kubernetes-images"
_PARTS: Final = ("adapters", "bridge", "deploy", "Dockerfile", "constraints.txt", "pyproject.toml")
Target = Literal["bridge", "mirror"]


def named(target: Target) -> str:
    """Return the name by which the chart finds it."""
    return f"openmessaging-bridge{'-mirror' if target == 'mirror' else ''}:{bridge.__version__}"


@functools.cache
def saved(target: Target) -> Path:
    """Return the archive of one of our images, after it is built if need be."""
    path = FOLDER / f"{target}-{_digest()}.tar"
    with filling(f"kubernetes-{target}.lock"):
        if not path.exists():
            FOLDER.mkdir(exist_ok=True)
            for older in FOLDER.glob(f"{target}-*"):
                older.unlink()
            with ExitStack() as stack:
                scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDER)))
                docker = stack.enter_context(running(scratch))
                _build(docker, target, scratch)
                docker("save", "-o", scratch / "archive", named(target))
                (scratch / "archive").rename(path)
    return path


@functools.cache
def of_program(name: str) -> Path:
    """Return the archive of an image of one program: `pause` or `coredns`."""
    program = programs.home() / "bin" / name
    path = FOLDER / f"{name}-{hashlib.sha256(program.read_bytes()).hexdigest()[:16]}.tar"
    with filling(f"kubernetes-{name}.lock"):
        if not path.exists():
            FOLDER.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=FOLDER) as scratch, running(Path(scratch)) as docker:
                archive = Path(scratch, "archive")
                with tarfile.open(archive, "w") as tar:
                    tar.add(program, name)
                docker("import", f'--change=ENTRYPOINT ["/{name}"]', archive, f"registry.local/{name}:1")
                docker("save", "-o", archive, f"registry.local/{name}:1")
                archive.rename(path)
    return path


@functools.cache
def orders() -> Path:
    """Return the archive of the application of `helm/examples/orders`, which has the bridge's Python."""
    program = Path(__file__).with_name("orders.py")
    path = FOLDER / f"orders-{hashlib.sha256(program.read_bytes()).hexdigest()[:16]}-{saved('bridge').stem}.tar"
    with filling("kubernetes-orders.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=FOLDER) as scratch, running(Path(scratch)) as docker:
                docker("load", "-i", saved("bridge"))
                shutil.copy(program, scratch)
                text = f'FROM {named("bridge")}\nCOPY orders.py /opt/\nENTRYPOINT ["python", "/opt/orders.py"]\n'
                Path(scratch, "Dockerfile").write_text(text, "utf-8")
                Path(scratch, ".dockerignore").write_text("*\n!orders.py\n", "utf-8")
                building.build(docker, Path(scratch), "orders:1.0.0")
                docker("save", "-o", Path(scratch, "archive"), "orders:1.0.0")
                Path(scratch, "archive").rename(path)
    return path


def _build(docker: Docker, target: Target, scratch: Path) -> None:
    docker("import", base.tar(), "oms-base")
    given = (f"--target={target}", "--build-arg=BASE=oms-base", f"--build-arg=VERSION={bridge.__version__}")
    building.build(docker, building.ROOT, named(target), *given, *building.secrets(scratch))


def _digest() -> str:
    """Return a digest of all files that the images are made of."""
    found = hashlib.sha256()
    for file in sorted(_files()):
        found.update(f"{file}\0".encode() + (building.ROOT / file).read_bytes())
    return found.hexdigest()[:16]


def _files() -> Iterator[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_PARTS]
    for file in subprocess.run(listed, cwd=building.ROOT, capture_output=True, text=True, check=True).stdout.split():
        if (building.ROOT / file).is_file():
            yield file
