"""The command line of an executor, and where its driver listens; test_kubernetes.py runs both."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.mirror.commands.run import executor, java_command
from bridge.mirror.session import settings

GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1500m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "mirror-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


@pytest.fixture(autouse=True)
def _not_submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither `spark-submit` nor a real Java."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_the_variables_of_the_pod_become_arguments(tmp_path: Path) -> None:
    home, command = java_command(GIVEN | {"SPARK_CONF_DIR": "/opt/spark/conf"})
    assert command[0] == str(tmp_path / "bin" / "java")
    assert f"-cp /opt/spark/conf:{home}/jars/*" in " ".join(command)
    assert {"-Xms1500m", "-Xmx1500m"} <= set(command)
    given = command[command.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend") + 1 :]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "mirror-exec-3",
    }


def test_options_of_java_keep_their_order() -> None:
    """`--add-opens` and what it opens can be two of them."""
    _, command = java_command(GIVEN | {f"SPARK_JAVA_OPT_{number}": f"-D{number}" for number in range(12)})
    assert [option for option in command if option.startswith("-D") and option[2:].isdigit()] == [
        f"-D{number}" for number in range(12)
    ]


def test_only_spark_starts_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_EXECUTOR_POD_IP")
    done = CliRunner().invoke(executor)
    assert done.exit_code == 1
    assert "Only Spark starts executors, in Kubernetes: SPARK_EXECUTOR_POD_IP is not set." in done.output


@pytest.mark.parametrize("master", ["k8s://https://kubernetes.default.svc", "spark://host:7077"])
def test_executors_elsewhere_reach_the_driver(master: str) -> None:
    found = settings({"spark.master": master})
    assert found["spark.master"] == master
    assert found.keys() & {"spark.driver.host", "spark.driver.bindAddress"} == set()
    assert found["spark.driver.memory"] == "1g"


@pytest.mark.parametrize("conf", [{}, {"spark.master": "local[2]"}])
def test_without_executors_nobody_else_reaches_it(conf: dict[str, str]) -> None:
    found = settings(conf)
    assert {found[f"spark.driver.{name}"] for name in ("host", "bindAddress")} == {"127.0.0.1"}
    assert found["spark.master"] == conf.get("spark.master", "local[*,4]")
