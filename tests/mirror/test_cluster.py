"""Nothing in the mirror assumes one machine: `spark-submit` to a standalone cluster of two workers, and to S3."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mirror.cluster import cluster
from tests.mirror.deployment import deployed
from tests.mirror.s3 import bucket

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("archived_jvm")]


def test_two_workers_mirror_together_to_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        lake = stack.enter_context(bucket(tmp_path / "s3"))
        for name, value in lake.environ.items():
            monkeypatch.setenv(name, value)
        place = stack.enter_context(deployed("kafka", tmp_path / "deployment"))._replace(url=lake.out)
        spark = stack.enter_context(cluster(tmp_path / "cluster", 2))
        for destination in ("orders", "bills"):
            place.publish(destination, [f"{number}" for number in range(500)])
        done = spark.submit("once", *place.source, "--out", place.url)
        assert done.returncode == 0, done.stderr
        assert "1,000 rows mirrored" in done.stdout
        assert spark.executors() == [1, 1]
        place.publish("orders", ["one more"])
        done = spark.submit("once", *place.source, "--out", place.url)
        assert "1 rows mirrored" in done.stdout, done.stderr
        found = place.verify()
        assert (found["exit"], found["findings"]) == (0, []), found
