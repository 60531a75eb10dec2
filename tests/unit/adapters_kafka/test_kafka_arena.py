"""Threads of Kafka's client libraries allocate from the arena of the event loop."""

import subprocess
import sys

PROGRAM = """
import ctypes, sys, threading
from adapters.kafka import connect
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if sys.argv[1] == "connect":
    connect("kafka://127.0.0.1:9092")
together = threading.Barrier(4)
def allocate():
    together.wait()
    for _ in range(1000):
        libc.malloc(5000)
threads = [threading.Thread(target=allocate) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.fopen.restype = ctypes.c_void_p
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fflush(None)
"""


def test_every_thread_has_the_one_arena() -> None:
    assert _arenas("without") > 1
    assert _arenas("connect") == 1


def _arenas(mode: str) -> int:
    told = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True).stdout
    return told.count("<heap nr=")
