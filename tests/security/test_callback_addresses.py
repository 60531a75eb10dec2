"""The table of addresses, alone: what is refused, what may be opened, what never."""

from ipaddress import ip_address

import pytest

from bridge.allowed_targets import AddressPolicy

OPENED_BY_NAME = {
    "10.0.0.1": "10.0.0.0/8",
    "10.255.255.255": "10.0.0.0/8",
    "100.64.0.1": "100.64.0.0/10",
    "100.127.255.255": "100.64.0.0/10",
    "127.0.0.1": "127.0.0.1/32",
    "127.255.255.254": "127.0.0.0/8",
    "172.16.0.1": "172.16.0.0/12",
    "172.31.255.255": "172.16.0.0/12",
    "192.0.0.8": "192.0.0.0/24",
    "192.0.2.1": "192.0.2.0/24",
    "192.88.99.1": "192.88.99.0/24",
    "192.168.1.1": "192.168.0.0/16",
    "198.18.0.1": "198.18.0.0/15",
    "198.19.255.255": "198.18.0.0/15",
    "198.51.100.1": "198.51.100.0/24",
    "203.0.113.1": "203.0.113.0/24",
    "240.0.0.1": "240.0.0.0/4",
    "::1": "::1/128",
    "64:ff9b::808:808": "64:ff9b::/96",
    "::ffff:8.8.8.8": "::ffff:0:0/96",
    "::ffff:0:8.8.8.8": "::ffff:0:0:0/96",
    "::8.8.8.8": "::/96",
    "100::1": "100::/64",
    "100:0:0:1::1": "100:0:0:1::/64",
    "2001::808:808:0:0:f7f7:f7f7": "2001::/32",
    "2001:2::1": "2001:2::/48",
    "2001:10::1": "2001:10::/28",
    "2001:20::1": "2001:20::/28",
    "2001:1ff::1": "2001::/23",
    "2001:db8::1": "2001:db8::/32",
    "2002:808:808::1": "2002::/16",
    "3fff:fff::1": "3fff::/20",
    "4000::1": "4000::/3",
    "5f00::1": "5f00::/16",
    "fc00::1": "fc00::/7",
    "fd12:3456::1": "fd00::/8",
    "fec0::1": "fec0::/10",
}
NEVER = [
    *("0.0.0.0", "0.1.2.3", "169.254.0.1", "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200"),
    *("192.0.0.192", "224.0.0.1", "239.255.255.250", "255.255.255.255", "::", "64:ff9b:1::808:808", "fe80::1"),
    *("fe80::a9fe:a9fe", "febf::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe"),
    *("fd00:100::100:200", "fd00:a9fe:a9fe::1", "fd00:42::42", "ff02::1", "ff0e::1"),
]
HIDDEN = [
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:10.0.0.1", "::127.0.0.1", "::10.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::10.1.2.3", "2002:7f00:1::", "2002:a00:1::1"),
    *("2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2001:0:808:808:0:0:80ff:fffe"),
]
EVERYTHING_NAMED = AddressPolicy.parse(
    ["::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96", "2002::/16", "2001::/32", "fc00::/7", "100.64.0.0/10"]
)
GLOBAL = ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"]
GLOBAL += ["128.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "198.20.0.0", "223.255.255.255"]
GLOBAL += ["2001:200::1", "2606:4700::1111", "2a00:1450::1", "3ffe::1"]


def test_it_is_refused_and_the_reason_names_it(subtests: pytest.Subtests) -> None:
    for text in (*OPENED_BY_NAME, *NEVER, *HIDDEN):
        with subtests.test(text):
            reason = AddressPolicy().refusal(ip_address(text))
            assert reason is not None
            assert reason.startswith(str(ip_address(text)))


def test_a_public_address_is_let_through(subtests: pytest.Subtests) -> None:
    for text in GLOBAL:
        with subtests.test(text):
            assert AddressPolicy().refusal(ip_address(text)) is None


def test_the_settings_can_open_it(subtests: pytest.Subtests) -> None:
    for text, network in OPENED_BY_NAME.items():
        with subtests.test(text):
            assert AddressPolicy.parse([network]).refusal(ip_address(text)) is None


def test_nothing_opens_it(subtests: pytest.Subtests) -> None:
    for text in NEVER:
        with subtests.test(text):
            with pytest.raises(ValueError, match="callbacks never reach"):
                AddressPolicy.parse([text])
            assert EVERYTHING_NAMED.refusal(ip_address(text)) is not None


def test_an_opened_tunnel_does_not_open_what_it_leads_to(subtests: pytest.Subtests) -> None:
    for text in HIDDEN:
        with subtests.test(text):
            assert "embeds" in (EVERYTHING_NAMED.refusal(ip_address(text)) or "")


def test_a_network_that_touches_what_is_never_reached_stops_the_start(subtests: pytest.Subtests) -> None:
    for network in ("0.0.0.0/0", "::/0", "128.0.0.0/1", "169.254.0.0/24", "160.0.0.0/4", "fe80::/64", "fe00::/8"):
        with subtests.test(network), pytest.raises(ValueError, match="callbacks never reach"):
            AddressPolicy.parse(["10.0.0.0/8", network])


def test_what_is_no_network_stops_the_start(subtests: pytest.Subtests) -> None:
    for network in ("10.0.0.1/8", "10.0.0", "localhost", "", "10.0.0.0/33", "[::1]", "::1%lo"):
        with subtests.test(repr(network)), pytest.raises(ValueError, match="is not a network"):
            AddressPolicy.parse([network])


def test_an_opened_address_opens_no_neighbour() -> None:
    addresses = AddressPolicy.parse(["127.0.0.1/32"])
    assert addresses.refusal(ip_address("127.0.0.1")) is None
    assert addresses.refusal(ip_address("127.0.0.2")) == "127.0.0.2 is loopback"
    assert addresses.refusal(ip_address("::1")) == "::1 is loopback"


def test_a_zone_changes_no_verdict() -> None:
    assert AddressPolicy().refusal(ip_address("fe80::1%1")) is not None
    assert AddressPolicy().refusal(ip_address("::1%lo")) is not None
    assert AddressPolicy().refusal(ip_address("fc00::1%1")) is not None
