"""Runs a program no longer than its parent runs: `python guard.py program ...`, with the parent at our standard input.

However the parent ends, the kernel closes its end, and the program is killed. PR_SET_PDEATHSIG needs no extra
process, but fires when the *thread* that started the program ends: a broker that an executor restarted would die too.
"""

import os
import subprocess
import sys
import threading

program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)


def _outlive_nobody() -> None:
    os.read(0, 1)  # not sys.stdin: a thread inside its lock is a fatal error when the interpreter ends
    program.kill()


threading.Thread(target=_outlive_nobody, daemon=True).start()
print(program.pid, flush=True)  # noqa: T201 - what the parent reads
sys.exit(program.wait() != 0)
