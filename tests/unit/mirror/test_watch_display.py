"""On a real terminal: a pseudo-terminal in place of standard error."""

import io
import logging
import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest
from rich.console import Console

from bridge import logs
from bridge.mirror.watch.display import display, glyphs, terminal
from bridge.mirror.watch.words import ASCII, UNICODE
from tests.unit.mirror.watched import ABOUT, busy


class Screen:
    """What came to a terminal."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._seen = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._seen += os.read(self.master, 65536)
            except OSError:  # EIO: the other side is closed
                return

    def close(self) -> str:
        self.stream.close()
        self._reader.join()
        os.close(self.master)
        return self._seen.decode()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    screen = Screen()
    yield screen
    if not screen.stream.closed:
        screen.close()


@contextmanager
def displayed(screen: Screen) -> Iterator[logging.Logger]:
    """Show a busy mirror as the job does; gives the log of the house."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    try:
        with redirect_stderr(screen.stream):
            logs.configure("info")
            (handler,) = root.handlers
            assert isinstance(handler, logging.StreamHandler)
            console = terminal()
            assert console is not None
            try:
                with display(console, busy, ABOUT):
                    assert handler.stream is not screen.stream
                    yield logging.getLogger("bridge.mirror")
            finally:
                assert handler.stream is screen.stream
            logging.getLogger("bridge.mirror").warning("after it")
    finally:
        root.handlers, root.level = before, level


def test_a_terminal_gets_a_display(screen: Screen) -> None:
    with displayed(screen):
        pass
    text = screen.close()
    assert "\x1b[?25l" in text
    assert text.count("\x1b[?25h") == 1  # the cursor is there again
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "● running" in plain
    assert "kafka://user:***@broker-1.example.org:9092 → hdfs://namenode:8020/srv/mirror" in plain
    assert "\x1b[1;32m" in text


def test_without_colours(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with displayed(screen):
        pass
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", screen.close())


def test_logs_stand_whole_above_the_display(screen: Screen) -> None:
    with displayed(screen) as log:
        log.warning("a [red]long[/red] line", extra={"reason": "x" * 500})
        sys.stderr.write("a defect of a library\n")
    text = screen.close()
    assert '"message": "a [red]long[/red] line", "reason": "' + "x" * 500 + '"}' in text
    last = text.rindex("● running")
    assert text.index("a [red]long") < last
    assert text.index("a defect of a library") < last
    assert last < text.index("after it")


def test_the_display_ends_with_an_error(screen: Screen) -> None:
    with pytest.raises(ZeroDivisionError), displayed(screen):
        raise ZeroDivisionError
    assert screen.close().count("\x1b[?25h") == 1


def test_a_dumb_terminal_gets_none(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stderr(screen.stream):
        assert terminal() is not None
        monkeypatch.setenv("TERM", "dumb")
        assert terminal() is None


def test_a_file_gets_none_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with redirect_stderr(io.StringIO()):
        assert terminal() is None


def test_a_terminal_without_unicode_is_drawn_in_ascii() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    console = Console(file=stream, force_terminal=True, width=100)
    with display(console, busy, ABOUT):
        pass
    stream.flush()
    assert b"* running" in written.getvalue()


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", UNICODE),
        ("UTF8", UNICODE),
        ("ascii", ASCII),
        ("ANSI_X3.4-1968", ASCII),
        ("latin-1", ASCII),
        (None, ASCII),
    ],
)
def test_what_a_stream_can_show(encoding: str | None, expected: object) -> None:
    assert glyphs(encoding) is expected
