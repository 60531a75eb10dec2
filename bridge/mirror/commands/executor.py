"""`mirror executor`: what the image runs in the pods that the mirror's driver asks Kubernetes for.

Spark starts the image with the argument `executor` and these variables, and its own images have a shell script for it.
PySpark has no such script.
"""
# ruff: noqa: PLC0415 - the imports: see bridge/cli/__init__.py

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from bridge.mirror.commands.stated import stated

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY: Final = "SPARK_EXECUTOR_MEMORY"
_OPTION: Final = "SPARK_JAVA_OPT_"
"""With a number: one option of Java each."""


@click.command(hidden=True)
def executor() -> None:
    """Become an executor of Spark, from the variables that Spark gives to its pods in Kubernetes."""
    with stated():
        from bridge.errors import CannotStart

        if missing := [name for name in (*_ARGUMENTS.values(), _MEMORY) if name not in os.environ]:
            raise CannotStart(f"Only Spark starts executors, in Kubernetes: {missing[0]} is not set.")
        home, command = java_command(os.environ)
        os.execve(command[0], command, os.environ | {"SPARK_HOME": str(home)})  # noqa: S606 - without a shell


def java_command(environ: Mapping[str, str]) -> tuple[Path, list[str]]:
    """Return the folder of Spark, and the command that runs an executor. Raises `CannotStart` without Java."""
    import pyspark

    from bridge.mirror.jars import java
    from bridge.mirror.session import LOGGING

    home = Path(pyspark.__file__).parent
    numbers = sorted(int(name.removeprefix(_OPTION)) for name in environ if name.startswith(_OPTION))
    options = [environ[f"{_OPTION}{number}"] for number in numbers]
    heap = [f"-Xms{environ[_MEMORY]}", f"-Xmx{environ[_MEMORY]}"]
    path = [environ.get("SPARK_CLASSPATH"), environ.get("SPARK_CONF_DIR"), str(home / "jars" / "*")]
    classes = ["-cp", ":".join(filter(None, path))]
    given = [each for option, name in _ARGUMENTS.items() for each in (option, environ[name])]
    return home, [java(), LOGGING, *options, *heap, *classes, _BACKEND, *given]
