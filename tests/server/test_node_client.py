"""Faults of single requests, with the HTTP/2 client of Node."""

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.server.serving import BOTH, App, Kind, running

NODE = shutil.which("node")
SCRIPT = Path(__file__).with_name("faults.mjs")


@BOTH
@pytest.mark.skipif(NODE is None, reason="Node is not installed; test_h2_cases.py has the same faults as raw frames")
async def test_a_faulty_request_leaves_the_others_alone(kind: Kind) -> None:
    app = App()
    async with running(kind, app) as server:
        node = await asyncio.create_subprocess_exec(NODE or "", SCRIPT, str(server.port), stdout=PIPE)
        assert node.stdout is not None
        async with asyncio.timeout(30):
            assert await node.stdout.readline() == b"ready\n"
            app.release.set()
            ends = json.loads(await node.stdout.read())
            await node.wait()
    ends.pop("destroyed")  # its code depends on the version of Node
    assert ends == {
        "too long": "reset 1",
        "too short": "reset 1",
        "reset": "reset 8",
        "good": 200,
        "held": 200,
    }
