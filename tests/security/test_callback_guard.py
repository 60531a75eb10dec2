"""The way out, whole: whatever a client writes, nothing is dialled that the settings do not allow."""

import asyncio
import socket
from itertools import product

import pytest
import uvloop

from bridge.allowed_targets import AddressPolicy, AllowedTargets, Target
from bridge.callbacks.callback_sender import Egress
from bridge.callbacks.connection import Dialer
from bridge.callbacks.retry_policy import EndpointResponse, NoResponse, RequestBlocked
from tests.security.endpoint import Connected, Names, Received, Trap, listening, obliging, outlet

FORBIDDEN = [
    *("127.0.0.1", "127.0.0.2", "127.0.1.1", "127.255.255.254", "0.0.0.0", "0.0.0.1", "10.0.0.1", "10.255.255.255"),
    *("172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "100.64.0.1", "100.100.100.200", "192.0.0.8"),
    *("169.254.169.254", "169.254.170.2", "169.254.0.23", "168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1"),
    *("198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::1", "::", "::127.0.0.1", "::7f00:2", "::ffff:127.0.0.1", "::ffff:7f00:2", "::ffff:0.0.0.0"),
    *("::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::127.0.0.1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::1"),
    *("fe80::1", "fe80::a9fe:a9fe", "fec0::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1"),
    *("100::1", "2001:db8::1", "2001:2::1", "2001:10::1", "2001:20::1", "3fff::1", "5f00::1", "4000::1"),
]
"""As a URL holds them: each in the notation that every reader understands."""

STRANGE = [
    *("127.1", "127.0.1", "127.0.0.01", "0177.0.0.1", "0177.1", "017700000001", "2130706433", "0x7f000001", "0x7f.1"),
    *("0x7f.0x0.0x0.0x1", "0X7F.0.0.1", "127.0.0.0x1", "00000177.0.0.1", "127.0.0.1.", "127.0.0.1..", "localhost."),
    *("0", "0.0", "00.00.00.00", "0x0", "0x", "4294967296", "256.0.0.1", "127.0.0.1.1", "425.510.425.510"),
    *("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "[::1%25lo]", "[fe80::1%25eth0]", "[::1%lo]"),
    *("[127.0.0.1]", "[::1].", "[0x7f::1]", "::1", "[::ffff:127.1]", "[::ffff:0x7f.0.0.1]", "%31%32%37.0.0.1"),
    *("127%2e0%2e0%2e1", "127.0.0.1%00", "127.0.0.1%20", "\u0661\u0662\u0667.0.0.1", "\uff11\uff12\uff17.0.0.1"),
    *(
        "127\u30020\u30020\u30021",
        "\u2460\u2461\u2466.0.0.1",
        "\u24db\u24de\u24d2alhost",
        "lo\u00adcalhost",
        "127.0.0.1\t",
    ),
    *("example.com@127.0.0.1", "example.com:80@127.0.0.1", "127.0.0.1#", "127.0.0.1\\@example.com", "127.0.0.1\r\n"),
    *(
        "example.com\\127.0.0.1",
        " 127.0.0.1",
        "127.0.0.1 ",
        "127.0.0.1,example.com",
        "127.0.0.1;example.com",
        "127-0-0-1.",
    ),
]
"""What one reader of URLs or another takes for a forbidden host."""


def in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


async def test_the_trap_holds(trap: Trap) -> None:
    for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1"):
        _, writer = await asyncio.open_connection(address, trap.port)
        writer.close()
        assert trap.sprung() == 1, address
    assert trap.sprung() == 0


async def test_a_forbidden_address_is_not_dialled_though_it_is_a_target(trap: Trap, subtests: pytest.Subtests) -> None:
    for address in FORBIDDEN:
        url = f"http://{in_url(address)}:{trap.port}"
        with subtests.test(address):
            async with outlet(url, networks=()) as egress:
                with pytest.raises(RequestBlocked, match=r"callbacks\.networks does not allow it"):
                    await egress.post(url + "/", [], b"x")
            assert trap.sprung() == 0


async def test_a_name_that_resolves_to_it_is_not_dialled(
    trap: Trap, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    url = f"http://hooks.example:{trap.port}"
    for address in FORBIDDEN:
        names = Names(monkeypatch, hooks_example=[[address]])
        with subtests.test(address):
            async with outlet(url, networks=()) as egress:
                with pytest.raises(RequestBlocked, match=r"hooks\.example is not dialled"):
                    await egress.post(url, [], b"x")
            assert names.asked == ["hooks.example"]
            assert trap.sprung() == 0


async def test_a_strange_spelling_is_no_url(trap: Trap, subtests: pytest.Subtests) -> None:
    async with outlet(f"http://*.example.com:{trap.port}", f"http://127.0.0.1:{trap.port}", networks=()) as egress:
        for host in STRANGE:
            with subtests.test(repr(host)):
                for url in (f"http://{host}:{trap.port}/", f"http://{host}/"):
                    with pytest.raises(RequestBlocked, match="x-oms-callbackurl"):
                        await egress.post(url, [], b"x")
                assert trap.sprung() == 0


async def test_behind_the_grammar_the_guard_holds_alone(trap: Trap, subtests: pytest.Subtests) -> None:
    """Without the grammar and without `Egress`."""
    for host in (
        *("127.0.0.1", "::1", "127.1", "0177.0.0.1", "0x7f000001", "2130706433", "localhost", "0", "127.0.0.1."),
        *("::1%lo", "::ffff:127.1", "::ffff:127.0.0.1"),
    ):
        with subtests.test(host):
            # Some C libraries do not resolve each of these.
            with pytest.raises((RequestBlocked, NoResponse), match=r"is not dialled|does not resolve"):
                await Dialer(AddressPolicy()).connect(Target("http", host, trap.port, "/"), asyncio.Protocol)
            assert trap.sprung() == 0


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["127.0.0.1", "::1"], ["::1%lo", "no address"]])
async def test_what_a_resolver_lets_through_is_judged_again(hosts: list[str], trap: Trap) -> None:
    class Careless(Dialer):
        async def resolve(self, host: str, port: int) -> list[str]:  # noqa: ARG002 - the dialer's signature
            return hosts

    egress = Egress(AllowedTargets.parse([f"http://hooks.example:{trap.port}"]), Careless(AddressPolicy()), 5000)
    with pytest.raises(NoResponse, match="is not dialled"):
        await egress.post(f"http://hooks.example:{trap.port}", [], b"x")
    await egress.close()
    assert trap.sprung() == 0


def test_it_holds_on_uvloop(trap: Trap) -> None:
    async def everything() -> None:
        for address in FORBIDDEN:
            url = f"http://{in_url(address)}:{trap.port}"
            async with outlet(url, networks=()) as egress:
                with pytest.raises(RequestBlocked):
                    await egress.post(url, [], b"x")
        async with outlet(f"http://localhost:{trap.port}", networks=()) as egress:
            with pytest.raises(RequestBlocked):
                await egress.post(f"http://localhost:{trap.port}", [], b"x")
        async with listening() as endpoint, outlet(endpoint.url) as egress:
            for _ in range(2):
                assert await egress.post(endpoint.url, [], b"x") == EndpointResponse(200, None)
            assert endpoint.connections == 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(everything())
    assert trap.sprung() == 0


async def test_a_name_is_resolved_once_for_a_connection_and_that_address_is_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def once(connected: Connected) -> None:
        await connected.receive()
        await connected.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with listening(once, "127.0.0.5") as endpoint:
        names = Names(monkeypatch, hooks_example=[["127.0.0.5"], ["127.0.0.1"]])
        url = f"http://hooks.example:{endpoint.port}"
        async with outlet(url, networks=("127.0.0.5",)) as egress:
            assert (await egress.post(url, [], b"x")).status == 200
            assert names.asked == ["hooks.example"]
            with pytest.raises(RequestBlocked, match=r"127\.0\.0\.1 is loopback"):
                await egress.post(url, [], b"x")
        assert names.asked == ["hooks.example"] * 2
        assert endpoint.connections == 1


@pytest.mark.parametrize("mixed", [["127.0.0.5", "127.0.0.1"], ["127.0.0.1", "127.0.0.5"], ["127.0.0.5", "::1"]])
async def test_one_forbidden_address_refuses_the_name(mixed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(obliging, "127.0.0.5") as endpoint:
        Names(monkeypatch, hooks_example=[mixed])
        url = f"http://hooks.example:{endpoint.port}"
        async with outlet(url, networks=("127.0.0.5",)) as egress:
            with pytest.raises(RequestBlocked):
                await egress.post(url, [], b"x")
        assert endpoint.connections == 0


async def test_the_next_address_is_tried_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(obliging, "127.0.0.5") as endpoint:
        Names(monkeypatch, hooks_example=[["127.0.0.6", "127.0.0.5", "127.0.0.5"]])
        url = f"http://hooks.example:{endpoint.port}"
        async with outlet(url, networks=("127.0.0.4/30",)) as egress:
            assert (await egress.post(url, [], b"x")).status == 200


async def test_a_dead_address_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(obliging, "127.0.0.5") as endpoint:
        Names(monkeypatch, hooks_example=[["127.0.0.6", "127.0.0.5"]])
        url = f"http://hooks.example:{endpoint.port}"
        with socket.create_server(("127.0.0.6", endpoint.port), backlog=0), socket.socket() as filling:
            filling.connect(("127.0.0.6", endpoint.port))  # now its queue is full: no further SYN is answered
            async with outlet(url, networks=("127.0.0.4/30",), milliseconds=2000) as egress:
                assert (await egress.post(url, [], b"x")).status == 200


async def test_a_name_that_resolves_to_nothing_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, empty_example=[[]])
    async with outlet("http://none.example", "http://empty.example") as egress:
        for url in ("http://none.example", "http://empty.example"):
            with pytest.raises(NoResponse):
                await egress.post(url, [], b"x")


async def test_a_redirect_is_an_answer_and_not_followed(trap: Trap, subtests: pytest.Subtests) -> None:
    locations = ("http://169.254.169.254/latest/meta-data/", f"http://127.0.0.1:{trap.port}/", "/elsewhere")
    for status, location in product((301, 302, 303, 307, 308), locations):
        followed: list[str] = []

        async def redirecting(
            connected: Connected, status: int = status, location: str = location, followed: list[str] = followed
        ) -> None:
            await connected.receive()
            await connected.send(
                b"HTTP/1.1 %d Moved\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % (status, location.encode())
            )
            followed.append((await connected.receive()).line)

        with subtests.test(f"{status} {location}"):
            async with (
                listening(redirecting) as endpoint,
                outlet(endpoint.url, f"http://127.0.0.1:{trap.port}") as egress,
            ):
                assert await egress.post(endpoint.url, [], b"x") == EndpointResponse(status, None)
                assert endpoint.connections == 1
            assert followed == []
            assert trap.sprung() == 0


async def test_no_cookie_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a name: some clients keep no cookies of an address."""
    seen: list[Received] = []

    async def baking(connected: Connected) -> None:
        while True:
            seen.append(await connected.receive())
            await connected.send(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with listening(baking) as endpoint:
        Names(monkeypatch, hooks_example=[["127.0.0.1"]])
        url = f"http://hooks.example:{endpoint.port}"
        async with outlet(url) as egress:
            for _ in range(2):
                await egress.post(url, [], b"x")
    assert ["cookie" in dict(one.headers) for one in seen] == [False, False]


async def test_the_environment_names_no_proxy(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{trap.port}")
        monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{trap.port}")
    for no_proxy in ("", "*"):
        monkeypatch.setenv("NO_PROXY", no_proxy)
        async with listening() as endpoint, outlet(endpoint.url) as egress:
            assert (await egress.post(endpoint.url, [], b"x")).status == 200
        async with outlet(f"http://127.0.0.1:{trap.port}", networks=()) as egress:
            with pytest.raises(RequestBlocked):
                await egress.post(f"http://127.0.0.1:{trap.port}", [], b"x")
    assert trap.sprung() == 0


async def test_what_the_settings_do_not_name_is_refused_at_each_post(trap: Trap) -> None:
    registered_before = f"http://127.0.0.1:{trap.port}/"
    egress = Egress(
        AllowedTargets.parse(["https://hooks.example.com"]), Dialer(AddressPolicy.parse(["127.0.0.1"])), 1000
    )
    with pytest.raises(RequestBlocked, match=r"callbacks\.targets does not allow"):
        await egress.post(registered_before, [], b"x")
    assert trap.sprung() == 0
