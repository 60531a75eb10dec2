"""What a web page may not do is refused; refusals are logged once a minute for each, in bounded memory."""

import logging

import pytest

from bridge.errors import Forbidden
from bridge.http.origin_policy import LOG_INTERVAL, LOGGED_MAX, OriginPolicy, RefusalLog
from bridge.wire.headers import Headers, parse

LOCAL = {b"host": b"localhost:8080"}
SITE = b"sec-fetch-site"


def headers(plain: dict[bytes, bytes]) -> Headers:
    return parse(plain.items())


class FakeTime:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def suppressed(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    """Return what each warning says about warnings left out: of the same value, of other values."""
    warnings = [vars(record) for record in caplog.records]
    caplog.clear()
    return [(each.get("suppressed", 0), each.get("suppressed_others", 0)) for each in warnings]


def test_a_refusal_is_logged_with_the_setting_to_change(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, str, dict[bytes, bytes], str]] = [
        ("host", "evil.example", {b"host": b"evil.example"}, "http.hosts"),
        ("origin", "https://shop.example", LOCAL | {b"origin": b"https://shop.example"}, "http.origins"),
    ]
    policy = OriginPolicy((), ())
    for header, value, headers, setting in cases:
        with subtests.test(header):
            caplog.clear()
            for _ in range(3):
                with pytest.raises(Forbidden, match=setting):
                    policy.check(headers)
            (record,) = caplog.records
            sentence = f"refused a request: its {header} is not allowed; to allow it, add it to the setting {setting}"
            assert (record.levelno, record.getMessage()) == (logging.WARNING, sentence)
            assert vars(record)[header] == value


def test_an_allowed_request_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    policy = OriginPolicy(("bridge.svc",), ("https://shop.example",))
    policy.check({b"host": b"bridge.svc:8080", b"origin": b"https://shop.example", SITE: b"cross-site"})
    policy.check({b"host": b"127.0.0.1:8080"})
    assert caplog.records == []


def test_a_page_of_another_site_is_refused_unless_its_origin_is_allowed(subtests: pytest.Subtests) -> None:
    policy = OriginPolicy((), ("https://shop.example",))
    for site in (b"cross-site", b"same-site", b"", b"Same-Origin", b"none, none"):
        with subtests.test(site.decode()):
            with pytest.raises(Forbidden, match=r"sec-fetch-site: .*http\.origins"):
                policy.check(LOCAL | {SITE: site})
            with pytest.raises(Forbidden, match="origin"):  # https on the same host and port is another origin
                policy.check(LOCAL | {SITE: site, b"origin": b"https://localhost:8080"})
            assert policy.check(LOCAL | {SITE: site, b"origin": b"https://shop.example"})
    for site in (b"same-origin", b"none"):
        with subtests.test(site.decode()):
            assert policy.check(LOCAL | {SITE: site}) == []
            assert policy.check(LOCAL | {SITE: site, b"origin": b"http://localhost:8080"}) == []


def test_a_host_may_have_a_port_and_a_dot_at_its_end(subtests: pytest.Subtests) -> None:
    policy = OriginPolicy(("bridge.svc", "other.svc."), ())
    for host in (
        *("localhost", "localhost.", "LOCALHOST.:80", "localhost:", "bridge.svc.", "bridge.svc.:8080", "other.svc"),
        *("127.0.0.1.", "[::1]", "[::1]:80", "::1", "10.1.2.3:8080"),
    ):
        with subtests.test(host):
            assert policy.check({b"host": host.encode()}) == []
    for host in (
        *("localhost..", ".localhost", "localhost.evil.example", "localhost:a", "localhost:80@evil.example"),
        *(
            "a@localhost",
            "localhost@evil.example",
            "[::1]x",
            "[::1]:x",
            "[::1].evil.example",
            "localhost:\u00b2",
            "",
            ".",
        ),
    ):
        with subtests.test(host), pytest.raises(Forbidden):
            policy.check({b"host": host.encode("latin-1")})


LOOPBACK = (b"localhost", b"LOCALHOST:1", b"a.localhost:8080", b"127.9.9.9:8080", b"[::1]:8080")
BEYOND = (b"10.1.2.3", b"10.1.2.3:8080", b"bridge.svc:8080", b"[2001:db8::1]:80", b"localhost.evil.example", b"")


def test_beyond_loopback_a_taking_request_needs_a_header_that_no_page_can_send(subtests: pytest.Subtests) -> None:
    policy = OriginPolicy(("*",), ())
    for host in BEYOND:
        with subtests.test(host.decode()):
            with pytest.raises(Forbidden, match="x-oms- header"):
                policy.check_taking(headers({b"host": host}))
            policy.check_taking(headers({b"host": host, b"x-oms-version": b"1.0.0"}))
            policy.check_taking(headers({b"host": host, b"x-oms-p-any": b"1"}))
            policy.check_taking(headers({b"host": host, SITE: b"none"}))
            policy.check_taking(headers({b"host": host, b"origin": b"http://allowed"}))
            OriginPolicy(("*",), (), tls=True).check_taking(headers({b"host": host}))
    for host in LOOPBACK:
        with subtests.test(host.decode()):
            policy.check_taking(headers({b"host": host}))
    policy.check_taking(headers({}))


def test_the_same_value_is_logged_once_in_the_interval_with_the_number_of_refusals_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeTime()
    refusals = RefusalLog(clock)
    for _ in range(8):
        refusals.add("host", "a", "http.hosts")
    refusals.add("host", "b", "http.hosts")
    assert suppressed(caplog) == [(0, 0), (0, 0)]
    clock.now += LOG_INTERVAL
    refusals.add("host", "a", "http.hosts")
    refusals.add("host", "a", "http.hosts")
    assert suppressed(caplog) == [(7, 0)]
    clock.now += LOG_INTERVAL
    refusals.add("host", "a", "http.hosts")
    assert suppressed(caplog) == [(1, 0)]


def test_many_different_values_are_logged_and_remembered_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeTime()
    refusals = RefusalLog(clock)
    for number in range(3 * LOGGED_MAX):
        refusals.add("host", f"h{number}", "http.hosts")
    assert len(suppressed(caplog)) == len(refusals._logged) == LOGGED_MAX
    refusals.add("host", "h0", "http.hosts")
    clock.now += LOG_INTERVAL
    refusals.add("host", "new", "http.hosts")
    assert suppressed(caplog) == [(0, 2 * LOGGED_MAX + 1)]
    assert len(refusals._logged) == LOGGED_MAX
