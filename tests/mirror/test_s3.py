"""The mirror on a real S3 server: writers at once, killed jobs, lost answers, and a server that is not good enough."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.cli.program import main
from bridge.errors import CannotStart
from bridge.mirror.session import check_conditional_writes, s3_settings
from tests.mirror.killing import GUARD, Reader, kill_and_finish
from tests.mirror.made import Batch, make_mirror, some
from tests.mirror.readers import places
from tests.mirror.s3 import Bucket, bucket

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("archived_jvm")]
JOB = Path(__file__).with_name("numbers_job.py")
Use = Callable[[Bucket], None]


@pytest.fixture
def use(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Let this process and its Spark use a server."""
    context: Any = spark.sparkContext._jsc
    jvm: Any = spark.sparkContext._jvm
    checkpoints = "spark.sql.streaming.checkpointFileManagerClass"

    def used(server: Bucket) -> None:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        # The JVM has the environment of its start.
        jvm.java.lang.System.setProperty("aws.accessKeyId", server.environ["AWS_ACCESS_KEY_ID"])
        jvm.java.lang.System.setProperty("aws.secretAccessKey", server.environ["AWS_SECRET_ACCESS_KEY"])
        for name, value in s3_settings(server.out).items():
            context.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
        spark.conf.set(checkpoints, s3_settings(server.out)[checkpoints])

    yield used
    spark.conf.unset(checkpoints)
    context.hadoopConfiguration().unset(checkpoints)  # Spark looks there, too: other tests of the worker use files


@pytest.fixture
def lake(use: Use, tmp_path: Path) -> Iterator[Bucket]:
    with bucket(tmp_path / "s3") as found:
        use(found)
        yield found


def all_once(total: int) -> list[tuple[str, int]]:
    return [(log, offset) for log in ("even", "odd") for offset in range(total // 2)]


def test_of_writers_at_once_exactly_one_wins(spark: SparkSession, lake: Bucket) -> None:
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc
    conf, line = context.hadoopConfiguration(), jvm.java.util.ArrayList(["{}"])
    writers, keys = 8, 10
    together, lost = threading.Barrier(writers), list[str]()

    def write(_: int) -> int:
        store, won = jvm.openmessaging.mirror.S3LogStore(conf), 0
        for key in range(keys):
            together.wait()
            try:
                store.write(jvm.org.apache.hadoop.fs.Path(f"{lake.out}/{key}.json"), line.iterator(), False, conf)
            except Py4JJavaError as error:
                lost.append(str(error.java_exception.getClass().getName()))
            else:
                won += 1
        return won

    with ThreadPoolExecutor(writers) as pool:
        assert sum(pool.map(write, range(writers))) == keys
    assert set(lost) == {"java.nio.file.FileAlreadyExistsException"}


def test_a_server_that_ignores_conditions_is_refused(spark: SparkSession, use: Use, tmp_path: Path) -> None:
    with bucket(tmp_path / "s3", conditional=False) as careless:
        use(careless)
        with pytest.raises(CannotStart, match="ignores If-None-Match"):
            check_conditional_writes(spark, careless.out)


def test_a_good_server_passes_and_nothing_stays(spark: SparkSession, lake: Bucket) -> None:
    check_conditional_writes(spark, lake.out)
    assert not list(lake.folder.rglob("written-twice*"))


def test_a_commit_whose_answer_is_lost_is_recognized(lake: Bucket) -> None:
    """S3's client repeats the request, and the server answers that the object exists."""
    with losing_the_answer_to(b"messages/_delta_log/00000000000000000001.json", lake.port) as (port, lost):
        environ = os.environ | lake._replace(port=port).environ
        done = subprocess.run(job(lake.out, 600), env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert lost.is_set()
    assert places(lake.out) == all_once(600)


@contextmanager
def losing_the_answer_to(upload: bytes, port: int) -> Iterator[tuple[int, threading.Event]]:
    """Forward connections to a port, and end that of the first upload of an object when its answer comes."""
    lost = threading.Event()

    def carry(client: socket.socket) -> None:
        uploading = threading.Event()

        def answer() -> None:
            with suppress(OSError):
                while data := server.recv(1 << 16):
                    if uploading.is_set() and not lost.is_set() and b" 100 " not in data[:16]:
                        lost.set()
                        break
                    client.sendall(data)
                client.shutdown(socket.SHUT_RDWR)

        with client, socket.create_connection(("127.0.0.1", port)) as server, suppress(OSError):
            answers = pool.submit(answer)
            while data := client.recv(1 << 16):
                if data.startswith(b"PUT ") and upload in data.partition(b"\r\n")[0]:
                    uploading.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)
            answers.result()

    def serve() -> None:
        with suppress(OSError):
            while True:
                pool.submit(carry, listener.accept()[0])

    with ThreadPoolExecutor(64) as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        pool.submit(serve)
        try:
            yield listener.getsockname()[1], lost
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends `accept`


def test_upkeep_and_export_with_a_profile(lake: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [name for name in lake.environ if name.startswith(("AWS_ACCESS", "AWS_SECRET"))]
    profile = [f"{name.lower()} = {lake.environ[name]}\n" for name in keys]
    (tmp_path / "credentials").write_text("".join(["[default]\n", *profile]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in keys:
        monkeypatch.delenv(name)
    make_mirror(lake.out, [Batch(some(4)), Batch(some(5, first=4))])
    assert command(lake, "compact", "--json")["removed"] == 2
    assert command(lake, "export", "--json")["rows"] == 9
    assert len(list(lake.folder.glob("mirror/parquet/**/*.parquet"))) == 1
    assert command(lake, "query", "--json", "SELECT count(*) AS n FROM messages") == {"n": 9}
    assert command(lake, "prune", "--json", "--keep", "30d")["rows"] == 9
    assert command(lake, "verify", "--json")["findings"] == []
    assert places(lake.out) == []


def command(lake: Bucket, name: str, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["mirror", name, "--out", lake.out, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def job(out: str, total: int) -> list[str]:
    return [sys.executable, str(JOB), out, str(total), "300"]


def test_killed_jobs_lose_and_double_nothing(lake: Bucket, tmp_path: Path) -> None:
    reader = Reader(lake.out)
    with reader.reading():
        kill_and_finish(job(lake.out, 1_500), lake.folder / "mirror", ("group",), 1, tmp_path / "job.log")
    assert reader.wrong == []
    assert reader.looks > 1
    assert places(lake.out) == all_once(1_500)


def test_two_jobs_on_one_checkpoint_lose_and_double_nothing(lake: Bucket, tmp_path: Path) -> None:
    logs = tmp_path / "one.log", tmp_path / "two.log"
    with logs[0].open("wb") as one, logs[1].open("wb") as two:
        both = [subprocess.Popen(job(lake.out, 1_500), stdout=log, stderr=log) for log in (one, two)]
        codes = [process.wait(GUARD) for process in both]
    said = "\n".join(log.read_text() for log in logs)
    assert 0 in codes, said
    assert codes == [0, 0] or re.search("Multiple streaming |Another mirror writes|would repeat|plans batch", said), (
        said
    )
    assert places(lake.out) == all_once(1_500), said
