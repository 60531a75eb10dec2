"""What h2spec asks of framing, stream states, flow control and header compression, with a client of our own."""

from contextlib import AbstractContextManager, nullcontext

import pytest
from h2.errors import ErrorCodes

from tests.server.h2_cases import ACCEPTED, CONNECTION_ERRORS, GET, STREAM_ERRORS, Case
from tests.server.raw_frames import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    RST_STREAM,
    WHOLE,
    RawClient,
    connected,
    frame,
    request,
)
from tests.server.serving import BOTH, App, Kind, running

GRANIAN_DIFFERS = {
    "DATA when half-closed": "ends the connection",
    "HEADERS when half-closed": "ends the connection",
    "a name in upper case": "ends the connection",
    "an unknown pseudo-field": "ends the connection",
    "a value with a line break": "ends the connection",
    "a pseudo-field in trailers": "ignored",
    "no path": "answered",
}
"""Cases in which hyper, below Granian, does something else. RFC 9113 allows the end of the connection."""

HELD = frame(HEADERS, WHOLE, 1, request("/hold"))


def as_expected(kind: Kind, case: Case) -> AbstractContextManager[object]:
    """Expect a failure if the server is known to differ."""
    differs = kind == "granian" and case.what in GRANIAN_DIFFERS
    return pytest.raises(AssertionError) if differs else nullcontext()


async def _send(client: RawClient, case: Case) -> None:
    client.send(HELD)
    if case.after_answer:
        client.send(GET)
        await client.until(DATA, 3, END_STREAM)
    client.send(case.sent)


async def _end_of_stream(client: RawClient, stream: int) -> int | None:
    """Return the code of the stream's reset, None if it ended normally."""
    async for received in client.frames():
        assert received.kind != GOAWAY, f"GOAWAY {received.code}"
        if received.stream == stream and received.kind == RST_STREAM:
            return received.code
        if received.stream == stream and received.flags & END_STREAM:
            return None
    raise AssertionError("the server closed the connection")


async def _held_is_answered(client: RawClient, app: App) -> None:
    app.release.set()
    assert await _end_of_stream(client, 1) is None
    app.release.clear()


@BOTH
async def test_what_a_client_may_send_is_accepted(kind: Kind, subtests: pytest.Subtests) -> None:
    app = App()
    async with running(kind, app) as server:
        for case in ACCEPTED:
            with subtests.test(f"{case.section} {case.what}"):
                async with connected(server.port) as client:
                    await _send(client, case)
                    await client.alive()
                    await _held_is_answered(client, app)


@BOTH
async def test_a_fault_of_a_request_costs_its_own_stream(kind: Kind, subtests: pytest.Subtests) -> None:
    app = App()
    async with running(kind, app) as server:
        for case in STREAM_ERRORS:
            with subtests.test(f"{case.section} {case.what}"), as_expected(kind, case):
                async with connected(server.port) as client:
                    await _send(client, case)
                    assert await _end_of_stream(client, 3) in case.codes
                    await client.alive()
                    await _held_is_answered(client, app)


@BOTH
async def test_a_fault_of_the_connection_ends_it(kind: Kind, subtests: pytest.Subtests) -> None:
    async with running(kind, App()) as server:
        for case in CONNECTION_ERRORS:
            if kind == "granian" and case.what == "more DATA than the window":
                continue  # its windows are larger
            with subtests.test(f"{case.section} {case.what}"), as_expected(kind, case):
                async with connected(server.port) as client:
                    await _send(client, case)
                    codes = [each.code async for each in client.frames() if each.kind == GOAWAY]
                    assert codes, "no GOAWAY"
                    assert codes[0] in case.codes or (kind == "granian" and codes[0] == ErrorCodes.PROTOCOL_ERROR)
