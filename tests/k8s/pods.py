"""Manifests of what the tests put beside the bridge, from `manifests/`."""

import json
import shlex
import shutil
from pathlib import Path
from string import Template
from typing import Final

from tests.brokers import jars
from tests.brokers.cache import CACHE
from tests.brokers.properties import properties_of
from tests.brokers.provide import rabbitmq_runtime
from tests.brokers.rabbitmq import RabbitMQ

_FOLDER: Final = Path(__file__).with_name("manifests")
_LOGGING: Final = Path(jars.__file__).with_name("log4j2.xml")


def manifest(file: str, /, **values: object) -> str:
    """Return a file of `manifests/` with its values, which are texts of YAML."""
    return Template((_FOLDER / f"{file}.yaml").read_text("utf-8")).substitute(values)


def kafka(namespace: str, data: Path) -> str:
    """Return a Kafka of one node, called `kafka`, from the machine's Java and the jars in the cache."""
    given = properties_of(1, [{"CONTROLLER": 9093, "PLAINTEXT": 9092}]) | {
        "log.dirs": f"{data}/kafka",
        "listeners": "CONTROLLER://127.0.0.1:9093,PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": f"PLAINTEXT://kafka.{namespace}.svc.cluster.local:9092",
    }
    options = (
        "-Xms256m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=/etc/kafka/log4j2.xml"
    )
    program = Path(shutil.which("java") or "java").resolve()  # not by /etc/alternatives, which is not in the pod
    java = f"{program} {options} -cp {shlex.quote(jars.classpath())}"
    form = f"{java} kafka.tools.StorageTool format --config=/etc/kafka/properties --cluster-id=AAAAAAAAAAAAAAAAAAAAAA"
    script = f"[ -e {data}/kafka/meta.properties ] || {form}; exec {java} kafka.Kafka /etc/kafka/properties"
    files = {"properties": "".join(f"{n}={v}\n" for n, v in given.items()), "log4j2.xml": _LOGGING.read_text("utf-8")}
    texts = {"files": json.dumps(files), "script": json.dumps(script)}
    return manifest("broker", name="kafka", port=9092, data=data, cache=CACHE, **texts)


def rabbitmq(data: Path) -> str:
    """Return a RabbitMQ of one node, called `rabbitmq`, from the packages in the cache; its folder is new."""
    settings = {"listeners.tcp.1": "0.0.0.0:5672", "loopback_users": "none"}
    broker = RabbitMQ(rabbitmq_runtime(), data, settings=settings, external=False)
    script = json.dumps(broker.nodes[0].script)
    return manifest("broker", name="rabbitmq", port=5672, data=data, cache=CACHE, files="{}", script=script)
