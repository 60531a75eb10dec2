"""The prefetch buffer alone, in this process: adding, leasing and settling a message are three operations."""

import time
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from adapters.base import Delivery
from benchmarks import talk
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import Plan
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.message import Message

MESSAGES: Final = 50_000
AHEAD: Final = 1024
"""The buffer's default size."""
FETCH: Final = 64
TARGET: Final = Target("figure", "≥", 200_000)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield one row without keys and one with 5,000 of them; the ceiling is a heap and a dict, and no rules."""
    for keys in (0, 5000):
        deliveries = [_delivery(number, keys) for number in range(MESSAGES)]
        rounds = [Round(_rate(_plain(deliveries)), _rate(_buffered(deliveries))) for _ in range(plan.rounds)]
        name = f"prefetch operations, {f'{keys:,} keys' if keys else 'no keys'}"
        yield Measurement(name, "operations/s", "a heap and a dict", rounds, TARGET)


def _delivery(number: int, keys: int) -> Delivery:
    key = f"customer-{number % keys}" if keys else None
    return Delivery(Message("orders", talk.SMALL, message_key=key, priority=number % 10 + 1), number % 8, number, 0)


def _rate(seconds: float) -> Sample:
    return Sample(3 * MESSAGES / seconds)


def _buffered(deliveries: list[Delivery]) -> float:
    buffer = PrefetchBuffer(16)
    at = done = 0
    begun = time.perf_counter()
    while done < MESSAGES:
        if at < MESSAGES and buffer.size < AHEAD:
            buffer.offer(deliveries[at : at + FETCH], 0)
            at += FETCH
        entries = buffer.lease(at, 0, 30_000, 1, 1)
        done += buffer.acknowledge([(entry, entry.number) for entry in entries])
    return time.perf_counter() - begun


def _plain(deliveries: list[Delivery]) -> float:
    ready: list[tuple[int, int, Delivery]] = []
    leased: dict[int, Delivery] = {}
    at = done = 0
    begun = time.perf_counter()
    while done < MESSAGES:
        if at < MESSAGES and len(ready) < AHEAD:
            for order, delivery in enumerate(deliveries[at : at + FETCH], at):
                heappush(ready, (-(delivery.message.priority or 0), order, delivery))
            at += FETCH
        _, order, delivery = heappop(ready)
        leased[order] = delivery
        del leased[order]
        done += 1
    return time.perf_counter() - begun
