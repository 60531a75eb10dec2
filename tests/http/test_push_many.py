"""Very many streams that wait: each costs a little memory and no time, and each gets what is its own."""

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.http.asking import fresh
from tests.http.conftest import Start
from tests.http.streaming import EVENTS, Streams, back_to, bodies_of, fill, load, wait_until
from tests.launch import Bridge

STREAMS = 100
"""On each connection."""
MEMORY = 20_000
"""Bytes that an idle stream may cost."""
WATCHED = 3.0
"""Seconds for which an idle bridge is watched."""
BUSY = 0.03
"""Of a core: more than this is not idle."""


def used(bridge: Bridge) -> float:
    """Seconds of a core that the process has used so far."""
    fields = Path(f"/proc/{bridge.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_while_idle(bridge: Bridge) -> float:
    before = used(bridge)
    time.sleep(WATCHED)
    return used(bridge) - before


def has(client: Streams, streams: list[int], text: bytes) -> bool:
    return all(text in client.bodies[stream] for stream in streams)


@pytest.mark.parametrize("connections", [10, pytest.param(100, marks=pytest.mark.extended)])
def test_idle_streams(start: Start, connections: int) -> None:
    total = connections * STREAMS
    # what is leased is a part of its group's window
    bridge, target = start(OMS_TIMEOUTS__BODY="29996", OMS_LIMITS__PREFETCH=f"{total}"), fresh()
    with ExitStack() as stack, Streams(bridge.url) as there:
        warm = [there.push(target, accept=EVENTS, group=b"warm") for _ in range(STREAMS)]
        there.until(partial(has, there, warm, b"retry: "), "the code is warm")
        there.leave("reset", warm)
        wait_until(lambda: load(bridge).requests == 0, lambda: load(bridge))
        rest, memory, time_alone = load(bridge), bridge.resident_bytes(), used_while_idle(bridge)

        opened: list[tuple[Streams, list[int]]] = []
        for _ in range(connections):
            client = stack.enter_context(Streams(bridge.url))
            streams = [client.push(target, (b"x-oms-credit", b"1"), accept=EVENTS) for _ in range(STREAMS)]
            client.until(partial(has, client, streams, b"retry: "), "they are open")
            opened.append((client, streams))
            for other, _ in opened:
                other.answer_pings()
        assert load(bridge)[:3] == (total, total, 0)
        each = (bridge.resident_bytes() - memory) / total
        assert each < MEMORY
        more_time = used_while_idle(bridge) - time_alone
        assert more_time < BUSY * WATCHED

        sent = [b"%d" % number for number in range(total)]
        fill(there, target, sent)
        got = []
        for client, streams in opened:
            client.until(partial(has, client, streams, b"\nid: "), "each gets one")
            got += [body for stream in streams for body in bodies_of(client.lines(stream))]
        assert sorted(got) == sorted(sent)
        assert load(bridge)[:3] == (total, 0, total)  # the credit of each is used up
        stack.close()
        back_to(bridge, rest)
