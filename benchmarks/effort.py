"""What a message costs the bridge in CPU time, whatever the load generator and the neighbours do meanwhile."""

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import fire
from benchmarks.measurement import Sample

STREAMS = 16


def produce(process: Process, destination: str, number: int) -> Sample:
    """Store so many messages of 100 bytes; microseconds of CPU for each."""
    with process.expecting(produced=number):
        before = process.cpu()
        fire(process.url, talk.small(destination), number, STREAMS)
        return _each(process.cpu() - before, number)


def consume(process: Process, source: str, group: str, number: int) -> Sample:
    """Pull and acknowledge so many; microseconds of CPU for both together."""
    with process.expecting(delivered=number, settled=number):
        before = process.cpu()
        talk.consume(process.url, source, group, number)
        return _each(process.cpu() - before, number)


def _each(seconds: float, number: int) -> Sample:
    return Sample(seconds / number * 1_000_000, seconds / number * 1000)
