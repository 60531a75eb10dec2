"""A real S3 server for tests: versitygw, built by Go into the cache, over a folder."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from tests.brokers.node import Node
from tests.brokers.ports import held_port
from tests.brokers.process import Process
from tests.brokers.provide import required

PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"
VERSION: Final = "v1.8.0"
_KEY: Final = "of-the-test"
_SECRET: Final = "of-the-test-too"  # noqa: S105 - of a server of our own


class Bucket(NamedTuple):
    """A server's one bucket. No other has its name: Spark remembers tables and servers by it."""

    port: int
    folder: Path
    """Where the server keeps the objects."""
    server: Node
    """Stopped and started again by a test of an outage."""

    @property
    def out(self) -> str:
        """A mirror in it."""
        return f"s3a://{self.folder.name}/mirror"

    @property
    def environ(self) -> dict[str, str]:
        """What a client finds in its environment."""
        region = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "us-east-1"}
        return region | {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}


@contextmanager
def bucket(directory: Path, *, conditional: bool = True) -> Iterator[Bucket]:
    """Serve a bucket. Without Go it fails in CI, and the test is skipped elsewhere.

    `conditional`: whether the server honours If-None-Match.
    """
    program = required("versitygw", PACKAGE, VERSION)
    objects, metadata = directory / "objects", directory / "metadata"
    folder = objects / f"lake-{uuid4()}"
    folder.mkdir(parents=True)
    metadata.mkdir()
    with held_port() as port:
        given = ["--port", f"127.0.0.1:{port}", "--access", _KEY, "--secret", _SECRET, "posix"]
        kept = ["--sidecar", str(metadata)] if conditional else ["--nometa"]
        script = f"exec {shlex.join([str(program), *given, *kept, str(objects)])}"
        server = Node(Process, script, directory / "server", b"listening on")
        server.start()
        try:
            yield Bucket(port, folder, server)
        finally:
            if server.running:
                server.kill()
