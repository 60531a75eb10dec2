"""A mirror that runs, told in events."""

from collections.abc import Iterable, Mapping
from functools import reduce

from bridge.mirror.layout import batch_key
from bridge.mirror.manifest import Gap
from bridge.mirror.schema import Area
from bridge.mirror.watch.events import Committed, Event, Progressed, Started
from bridge.mirror.watch.state import State, after
from bridge.mirror.watch.status import About

BEGIN = 1_800_000_000_000
ABOUT = About("kafka://user:***@broker-1.example.org:9092", "hdfs://namenode:8020/srv/mirror", "0.1.0", 77)


def told(events: Iterable[Event], state: State | None = None) -> State:
    return reduce(after, events, state or State(BEGIN))


def batch(number: int, rows: Mapping[Area, int], gaps: tuple[Gap, ...] = (), when: int | None = None) -> Committed:
    took = {"stage": 1800, "commit": 12, "publish": 240}
    moment = BEGIN + number * 10_000 if when is None else when
    return Committed(batch_key("q", number), number, rows, 350_000, 4, gaps, took, moment)  # type: ignore[arg-type]


def busy() -> State:
    """Ten batches in a hundred seconds, with everything that can be seen."""
    lag = {f"orders/{partition}": 20_000 - partition * 1500 for partition in range(8)}
    lag["a-destination-with-a-long-name-that-does-not-fit-on-small-terminals/12"] = 30_000
    events: list[Event] = [Started("run", BEGIN)]
    for number in range(1, 11):
        gaps = (Gap("orders/0", 10, 20),) if number == 7 else ()
        events.append(batch(number, {"data": 12_345 * number, "dead-letters": 3, "quarantine": number // 10}, gaps))
        events.append(Progressed(12_345, 2300, lag, BEGIN + number * 10_000 + 200))
    return told(events)
