"""Callbacks per second to one endpoint, beside a loop that does nothing but POST with the bridge's own client."""

import asyncio
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count, repeat
from typing import Final
from urllib.request import Request, urlopen

from benchmarks import talk
from benchmarks.launch import Process, bridge, sink
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import SERVERS, Plan
from bridge.callbacks.addresses import Addresses
from bridge.callbacks.dialer import Dialer
from bridge.callbacks.egress import Egress
from bridge.callbacks.signing import Signer
from bridge.callbacks.targets import Targets
from bridge.message import Message
from bridge.wire.headers import encode

IN_FLIGHT: Final = 64
TARGET: Final = Target("figure", "≥", 2000)
NETWORK: Final = "127.0.0.1/32"
SECRET: Final = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="  # noqa: S105 - signs nothing that matters
MESSAGE_ID: Final = "01a1fc7f-48bf-702d-8b23-434730042b4e"
TIMEOUT: Final = 15_000
"""Milliseconds; nothing takes as long."""
PATIENCE: Final = 60
"""Seconds for one load."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield a row for each server, which only takes the registration: what is measured is the same."""
    number = max(talk.BATCH, plan.steps)
    for server in SERVERS:
        with sink() as endpoint:
            settings = {"TARGETS": endpoint.url, "NETWORKS": NETWORK, "SECRETS": SECRET, "IN_FLIGHT": str(IN_FLIGHT)}
            with bridge(server, settings={f"OMS_CALLBACKS__{k}": value for k, value in settings.items()}) as figure:
                talk.preload(figure.url, "orders", number)
                groups = (f"calls-{turn}" for turn in count())
                _posted(endpoint, number)
                _called(figure, endpoint, next(groups), number)
                rounds = [
                    Round(_posted(endpoint, number), _called(figure, endpoint, next(groups), number))
                    for _ in range(plan.rounds)
                ]
        name = f"callbacks, {server}, 1 KiB, {IN_FLIGHT} in flight"
        yield Measurement(name, "callbacks/s", "loop with the same client", rounds, TARGET, "the bridge itself")


def _called(figure: Process, endpoint: Process, group: str, number: int) -> Sample:
    """Register the endpoint for a group that is new, until it has taken every message."""
    before = figure.cpu()
    with figure.expecting(settled=number, callbacks_delivered=number, callbacks_failed=0):
        all_settled = figure.counts()["settled"] + number
        _register(figure, group, f"{endpoint.url}/orders")
        rate = _rate(endpoint, number)
        _register(figure, group, "")
        deadline = time.monotonic() + PATIENCE
        while figure.counts()["settled"] < all_settled and time.monotonic() < deadline:
            time.sleep(0.01)  # the last answers are on their way
    return Sample(rate, (figure.cpu() - before) / number * 1000)


def _posted(endpoint: Process, number: int) -> Sample:
    """POST as many, the same headers each time, from this process."""
    before = time.process_time()
    if find_spec("uvloop") is not None:  # as the bridge chooses
        import uvloop  # noqa: PLC0415 - an extra

        uvloop.run(_post_all(endpoint.url, number))
    else:
        asyncio.run(_post_all(endpoint.url, number))
    return Sample(_rate(endpoint, number), (time.process_time() - before) / number * 1000)


async def _post_all(url: str, number: int) -> None:
    egress = Egress(Targets.parse([url]), Dialer(Addresses.parse([NETWORK])), TIMEOUT)
    body = talk.BODY
    message = Message("orders", body, message_id=MESSAGE_ID, message_key="customer-12", properties={"region": "eu"})
    headers = [*encode(message), *Signer.parse([SECRET]).headers(MESSAGE_ID, 0, body)]
    turns = repeat(None, number)

    async def post() -> None:
        for _ in turns:  # one iterator for all
            await egress.post(f"{url}/orders", headers, body)

    await asyncio.gather(*(post() for _ in range(IN_FLIGHT)))
    await egress.close()


def _register(figure: Process, group: str, target: str) -> None:
    request = Request(figure.url + talk.callback_path("orders", group, target), method="POST")  # noqa: S310 - our own
    urlopen(request, timeout=PATIENCE).close()  # noqa: S310


def _rate(endpoint: Process, number: int) -> float:
    """Callbacks per second from the first to the last of so many."""
    with urlopen(f"{endpoint.url}/{number}", timeout=PATIENCE) as answer:  # noqa: S310
        return (number - 1) / float(answer.read())
