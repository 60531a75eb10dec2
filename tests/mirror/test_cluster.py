"""Nothing in the mirror assumes one machine: `spark-submit` to a standalone cluster of two workers."""

from pathlib import Path

from tests.mirror.cluster import cluster
from tests.mirror.deployment import deployed


def test_two_workers_mirror_together(tmp_path: Path) -> None:
    with deployed("kafka", tmp_path / "deployment") as place, cluster(tmp_path / "cluster", 2) as spark:
        for destination in ("orders", "bills"):
            place.publish(destination, [f"{number}" for number in range(500)])
        done = spark.submit("once", *place.source, "--out", str(place.out))
        assert done.returncode == 0, done.stderr
        assert "1,000 rows mirrored" in done.stdout
        assert spark.executors() == [1, 1]
        place.publish("orders", ["one more"])
        done = spark.submit("once", *place.source, "--out", str(place.out))
        assert "1 row mirrored" in done.stdout, done.stderr
        found = place.verify()
        assert (found["exit"], found["findings"]) == (0, []), found
