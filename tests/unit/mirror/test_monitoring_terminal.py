"""The view on a terminal: a pseudo-terminal in place of standard error."""

import io
import logging
import os
import pty
import re
import sys
import threading
from contextlib import redirect_stderr

import pytest
from rich.console import Console

from bridge import logs
from bridge.mirror.monitoring.status import Status
from bridge.mirror.monitoring.terminal import live_view, summary, terminal, view
from bridge.mirror.offsets import Gap
from tests.unit.mirror.monitored import BEGIN, after, batch, busy

EVIL = "[red]evil[/red]\x1b[31m\n\r\x07\u202e\x9b2J"
HARMLESS = r"[red]evil[/red]\x1b[31m"

WIDE = """\
mirror             running  0:01:45  reading and writing a batch
                            kafka://user:***@broker-1:9092 → /srv/mirror
rows               679,006  12,345/s
lag                118,000  8 logs, 0:01:45
                    20,000  orders/0
                    18,500  orders/1
                    17,000  orders/2
                    15,500  orders/3
                    14,000  orders/4
last commit    0:00:05 ago  123,454 rows, 4 files, 350.0 kB; stage 1.8 s, commit 0.0 s
dead letters            30
quarantined              1
gap                      1  orders/0 from 10 to 19
unmirrored               1
"""


def shown(status: Status, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(view(status, after(105)))
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


def test_the_view_and_the_summary() -> None:
    assert shown(busy()) == WIDE
    assert max(map(len, shown(busy(), 40).splitlines())) <= 40
    assert summary(busy(), after(105)) == (
        "679,006 rows mirrored in 10 batches, 0:01:45\n"
        "678,975 messages, 30 dead letters, 1 quarantined; 40 files, 3.5 MB\n"
        "1 gaps: orders/0 from 10 to 19\n"
        "1 destinations not mirrored\nlegacy: it is a queue"
    )
    new = Status("memory://", "/srv/mirror", after(105))
    assert "last commit       none yet" in shown(new)
    assert "lag                      ?  0 logs\n" in shown(new)
    new.looked({"orders/0": 7}, after(106))
    assert "lag                      7  1 logs\n" in shown(new)
    new.began(after(45))
    assert "lag                      7  1 logs, 0:01:00\n" in shown(new)
    new.stopped("the disk is full")
    assert "the disk is full" in shown(new)


def test_text_of_others_is_no_markup_and_controls_nothing() -> None:
    status = busy()
    status.committed(batch(11, {}, (Gap(EVIL, 1, None),)))
    status.triggered(0, 1, {EVIL: 10**9}, after(104))
    status.unavailable(EVIL, BEGIN)
    status.not_mirrored({EVIL: EVIL})
    assert shown(status, 200).count(HARMLESS) == 3
    assert all(line.isprintable() for line in shown(status, 200).splitlines())
    assert summary(status, BEGIN).count(HARMLESS) == 3


def test_a_terminal_gets_a_live_view_with_log_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    master, slave = pty.openpty()
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                seen.extend(os.read(master, 65536))
            except OSError:  # EIO: the other side is closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    root = logging.getLogger()
    before, level = root.handlers, root.level
    with os.fdopen(slave, "w", encoding="utf-8") as stream, redirect_stderr(stream):
        logs.configure("info")
        console = terminal()
        assert console is not None
        try:
            with live_view(console, busy()):
                (handler,) = root.handlers
                assert isinstance(handler, logging.StreamHandler)
                assert handler.stream is not stream  # else the view is drawn over what is logged
                logging.getLogger("bridge.mirror").warning("a [red]log[/red] line")
                sys.stderr.write("a defect of a library\n")
            assert handler.stream is stream
            logging.getLogger("bridge.mirror").warning("after it")
        finally:
            root.handlers, root.level = before, level
        monkeypatch.setenv("TERM", "dumb")
        assert terminal() is None
    reader.join()
    os.close(master)
    text = seen.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    last = plain.rindex("reading and writing a batch")
    assert plain.index("bridge.mirror: a [red]log[/red] line") < last
    assert plain.index("a defect of a library") < last < plain.index("after it")


def test_a_file_gets_no_view_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with redirect_stderr(io.StringIO()):
        assert terminal() is None
