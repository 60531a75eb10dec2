"""Delete and purge over HTTP, while a second bridge of the same backend uses the destination."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import httpx

from tests.bridged import bridged
from tests.conformance.conversation import Conversation
from tests.http.callback_endpoint import Endpoint, listed, register, wait_until
from tests.launch import Bridge
from tests.trouble import accepted, taken


class Two(NamedTuple):
    """Two bridges on one backend: an operator and a client of the first, and a client of the second."""

    operator: httpx.AsyncClient
    near: Conversation
    far: Conversation
    """The same destination, another group."""

    async def change(self, method: str, path: str) -> httpx.Response:
        """Delete or purge at the first bridge; `path` follows that of the destination."""
        return await self.operator.request(method, f"/v1/destinations/{self.near.destination}{path}")


@asynccontextmanager
async def two_bridges(directory: Path, backend: str) -> AsyncIterator[Two]:
    """Start both; afterwards neither has logged a traceback."""
    async with (
        bridged(directory / "near", backend) as (first, near),
        bridged(directory / "far", backend) as (last, far),
    ):
        far.destination = near.destination
        async with httpx.AsyncClient(base_url=first.management, trust_env=False, timeout=60) as operator:
            yield Two(operator, near, far)
        for bridge in first, last:
            assert not _tracebacks(bridge), bridge.log_file.read_text("utf-8")


async def check_purge(two: Two) -> None:
    """A group and a destination are purged; what is stored afterwards is delivered."""
    near, far = two.near, two.far
    await near.produce(b"a")
    await near.nack((await near.take()).receipt)
    assert (await two.change("POST", f"/groups/{near.group}/purge")).status_code == 204
    await near.nothing()
    assert await taken(far, meanwhile=set()) == b"a"
    await near.produce(b"b")
    await near.nack((await near.take()).receipt)
    assert (await two.change("POST", "/purge")).status_code == 204
    await near.nothing()
    await near.produce(b"c")
    assert await taken(near, meanwhile={503}) == b"c"
    near.group = "late"
    assert await taken(near, meanwhile={503}) == b"c"
    await near.nothing()


async def check_delete(two: Two) -> None:
    """A destination is deleted under both bridges. Both go on with the new one."""
    near, far = two.near, two.far
    await near.produce(b"old")
    assert await taken(near, meanwhile=set()) == b"old"
    await far.take()
    assert (await two.change("DELETE", "")).status_code == 204
    await accepted(near, b"new")
    for talk in near, far:
        assert await taken(talk, meanwhile={404, 503}) == b"new"
        await talk.nothing()
    await accepted(far, b"newer")
    assert await taken(near, meanwhile={503}) == b"newer"


async def check_unknown(two: Two) -> None:
    """What does not exist is 404, also what was deleted just before."""
    await two.near.produce(b"a")
    assert await taken(two.near, meanwhile=set()) == b"a"
    group = f"/groups/{two.near.group}"
    assert [(await two.change("DELETE", path)).status_code for path in (group, group)] == [204, 404]
    assert await taken(two.near, meanwhile=set()) == b"a"
    assert [(await two.change("DELETE", path)).status_code for path in ("", "", "/groups/g")] == [204, 404, 404]
    for path in "/purge", f"{group}/purge":
        answer = await two.change("POST", path)
        assert (answer.status_code, answer.json()["code"]) == (404, "destination-unknown")


def _tracebacks(bridge: Bridge) -> bool:
    log = bridge.log_file.read_text("utf-8")
    return "Traceback" in log or '"exception"' in log


def check_callbacks(directory: Path, backend: str) -> None:
    """Callbacks of two bridges deliver on, whatever is purged and deleted at the first one."""
    name = f"orders-{uuid4().hex[:8]}"
    endpoint = Endpoint().listen()
    try:
        with (
            Bridge(directory / "near", backend=backend, settings=endpoint.settings()) as near,
            Bridge(directory / "far", backend=backend, settings=endpoint.settings()) as far,
        ):
            bridges = {"near": near, "far": far}
            for group, bridge in bridges.items():
                register(bridge, name, endpoint.url(f"/{group}"), group)
            _deliver_to_all(near, endpoint, name, b"first")
            for what, path in {"POST": "/purge", "DELETE": ""}.items():
                answer = httpx.request(
                    what, f"{near.management}/v1/destinations/{name}{path}", trust_env=False, timeout=60
                )
                assert answer.status_code == 204, answer.text
                _deliver_to_all(near, endpoint, name, what.encode())
            for bridge in bridges.values():
                wait_until(lambda: (listed(bridge, name) or {})["state"] == "delivering")  # noqa: B023 - at once
            assert not any(map(_tracebacks, bridges.values()))
    finally:
        endpoint.close()


def _deliver_to_all(bridge: Bridge, endpoint: Endpoint, name: str, body: bytes) -> None:
    """Produce one message, and wait until both groups have it."""
    headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": name}

    def stored() -> bool:
        answer = httpx.post(f"{bridge.url}/v1/messages", headers=headers, content=body, trust_env=False, timeout=60)
        return answer.status_code == 200

    wait_until(stored)
    for group in "near", "far":
        wait_until(lambda: body in {post.body for post in endpoint.to(f"/{group}")}, 90)  # noqa: B023 - at once
