"""The commands on the page about the mirror that need a bucket, run against a real S3 server."""

from pathlib import Path

import pytest

from tests.docs.commands import commands
from tests.docs.shell import Shell
from tests.launch import Bridge
from tests.mirror.s3 import bucket

pytestmark = pytest.mark.extended
COMMANDS = [command.text for command in commands("docs/mirror.md") if command.needs is None and "s3a:" in command.text]


def test_the_way_to_a_bucket_can_be_walked(tmp_path: Path) -> None:
    with bucket(tmp_path / "s3") as lake, Bridge(tmp_path / "bridge") as bridge:
        shell = Shell(tmp_path / "shell", bridge, lake.environ)
        shell.run("oms-bridge produce orders one")
        printed = {}
        for command in COMMANDS:
            printed[command.split()[2]] = shell.run(command.replace("s3a://lake/mirror", lake.out))
        assert len(printed) == 8
        assert "1 rows mirrored" in printed["once"]
        assert "orders" in printed["query"]
        assert printed["verify"].endswith("no errors\n")
        assert printed["restore"] == "1 sent, 0 expired and skipped, 0 refused\n"
