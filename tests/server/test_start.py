"""The start: what it refuses, what it leaves alone, and on which event loop it runs."""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest

from bridge.server import Listener, granian, serve
from bridge.server.hypercorn import accept
from tests.server.frames import connected
from tests.server.serving import BOTH, App, Kind, running


@BOTH
async def test_a_port_in_use_is_named(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            await serve(
                kind,  # type: ignore[arg-type]
                App(),
                Listener("127.0.0.1", port),
                stop=asyncio.Event(),
                grace=1,
                ready=lambda _: pytest.fail("it was not ready"),
            )


@pytest.mark.parametrize(("kind", "module"), [("hypercorn", accept), ("granian", granian)])
async def test_another_version_is_refused(kind: Kind, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", "0.0.1")
    with pytest.raises(RuntimeError, match=r"0\.0\.1"):
        async with running(kind, App()):
            pytest.fail("it ran")


async def test_a_missing_granian_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "granian", None)
    with pytest.raises(RuntimeError, match="fast"):
        async with running("granian", App()):
            pytest.fail("it ran")


@BOTH
async def test_the_server_changes_neither_signals_nor_logging_nor_stdout(
    kind: Kind, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    handlers = list(logging.getLogger().handlers)
    async with running(kind, App()) as server, connected(server.port) as client:
        assert (await client.answer(client.request("/size"))).status == 200
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert logging.getLogger().handlers == handlers
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert capfd.readouterr() == ("", "")


@BOTH
async def test_a_failure_of_the_application_is_logged_once(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    async with running(kind, App()) as server, connected(server.port) as client:
        client.request("/crash")
        await asyncio.sleep(0.3)
    errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in errors] == ["bridge.server.unfinished_requests"]


@pytest.mark.parametrize("kind", ["hypercorn", "granian"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_process_ends_after_the_stop(kind: str, loop: str) -> None:
    """The process exits after the stop, although a response is open: no thread and no handler keeps it."""
    program = """
        import asyncio, socket, sys
        from bridge.server import Listener, serve

        async def app(scope, receive, send):
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"tick", "more_body": True})
            await asyncio.sleep(3600)

        async def main(kind):
            stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
            task = asyncio.create_task(
                serve(kind, app, Listener("127.0.0.1", 0), stop=stop, grace=0.2, ready=ready.set_result)
            )
            global client
            client = socket.create_connection(("127.0.0.1", await ready))
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"GET / HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n")
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200")
            stop.set()
            await task
            print("returned")

        kind, loop = sys.argv[1:]
        factory = __import__(loop).new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main(kind))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), kind, loop],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "returned\n", "")
