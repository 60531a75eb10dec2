"""Which connections a port accepts, and which are idle for too long."""

import logging

import pytest

from bridge.server.connection_limits import Admission, IdleConnections


def admission(limit: int, percent: int) -> Admission:
    return Admission(limit, percent, lambda host: host)


def test_a_client_has_its_share_and_all_have_the_limit() -> None:
    port = admission(4, 50)
    assert [port.accept(host) for host in "aaabcc"] == [True, True, False, True, True, False]
    assert port.connections == 4
    port.release("a")
    assert [port.accept(host) for host in "acb"] == [True, False, False]
    for host in "aabc":
        port.release(host)
    assert port.connections == 0


def test_one_client_has_one_connection_at_least() -> None:
    assert admission(10, 1).accept("a")


def test_refusals_are_logged_once_until_there_is_room_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    port = admission(10, 100)
    for _ in range(20):
        port.accept("a")
        port.release("b") if port.accept("b") else None
    assert caplog.text.count("connections are refused") == 1
    for _ in range(5):
        port.release("a")
    for _ in range(20):
        port.accept("a")
    assert caplog.text.count("connections are refused") == 2


def test_a_connection_is_idle_since_its_last_request() -> None:
    idle = IdleConnections(75)
    assert not idle.is_too_long(1, 0, busy=False)
    assert not idle.is_too_long(1, 75, busy=False)
    assert idle.is_too_long(1, 76, busy=False)
    assert not idle.is_too_long(1, 80, busy=True)
    assert not idle.is_too_long(1, 155, busy=False)
    assert idle.is_too_long(1, 156, busy=False)


def test_a_closed_connection_is_forgotten() -> None:
    idle = IdleConnections(75)
    idle.is_too_long(1, 0, busy=False)
    idle.forget_others({2})
    assert not idle.is_too_long(1, 100, busy=False)
