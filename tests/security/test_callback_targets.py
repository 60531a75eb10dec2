"""The allow-list and the grammar of callback URLs."""

import pytest

from bridge.allowed_targets import URL_MAX, AllowedTargets
from bridge.errors import CallbackRefused, HeaderInvalid

TARGETS = AllowedTargets.parse(
    ["https://hooks.example.com", "https://*.example.org", "http://app:9000", "http://127.0.0.1:8000", "https://[::1]"]
)


SPELLINGS = (
    ("https://hooks.example.com", "https://hooks.example.com/"),
    ("https://hooks.example.com/a?b=c", "https://hooks.example.com/a?b=c"),
    ("https://hooks.example.com?b=c", "https://hooks.example.com/?b=c"),
    ("https://hooks.example.com:443/a", "https://hooks.example.com/a"),
    ("HTTPS://Hooks.EXAMPLE.com/A%2F", "https://hooks.example.com/A%2F"),
    ("https://hooks.example.com/@x:y/", "https://hooks.example.com/@x:y/"),
    ("https://hooks.example.com/?u=http://x", "https://hooks.example.com/?u=http://x"),
    ("https://a.example.org/", "https://a.example.org/"),
    ("https://a.b.example.org/", "https://a.b.example.org/"),
    ("https://xn--bcher-kva.example.org/", "https://xn--bcher-kva.example.org/"),
    ("http://app:9000/in", "http://app:9000/in"),
    ("http://127.0.0.1:8000/in", "http://127.0.0.1:8000/in"),
    ("https://[0:0:0:0:0:0:0:1]/in", "https://[::1]/in"),
)


def test_an_allowed_url_comes_back_in_one_spelling(subtests: pytest.Subtests) -> None:
    for url, canonical in SPELLINGS:
        with subtests.test(url):
            target = TARGETS.check(url)
            assert str(target) == canonical
            assert TARGETS.check(canonical) == target


OTHERS = (
    "http://hooks.example.com/",
    "https://hooks.example.com:8443/",
    "https://hooks.example.com.evil.net/",
    "https://evilhooks.example.com/",
    "https://x.hooks.example.com/",
    "https://example.org/",
    "https://evilexample.org/",
    "https://a.example.org.evil.net/",
    "http://a.example.org/",
    "https://a.example.org:444/",
    "https://app:9000/",
    "http://app/",
    "http://127.0.0.1/",
    "http://127.0.0.2:8000/",
    "https://[::2]/",
    "https://[::ffff:127.0.0.1]/",
)


def test_another_scheme_host_or_port_is_refused(subtests: pytest.Subtests) -> None:
    for url in OTHERS:
        with subtests.test(url), pytest.raises(CallbackRefused, match=r"callbacks\.targets does not allow"):
            TARGETS.check(url)


def test_without_a_pattern_nothing_is_allowed() -> None:
    with pytest.raises(CallbackRefused):
        AllowedTargets.parse([]).check("https://hooks.example.com/")


WRONG = (
    ("", "must begin with https"),
    ("hooks.example.com", "must begin with https"),
    ("//hooks.example.com", "must begin with https"),
    ("ftp://hooks.example.com/", "must begin with https"),
    ("file:///etc/passwd", "must begin with https"),
    ("https:/hooks.example.com/", "must begin with https"),
    ("https:hooks.example.com", "must begin with https"),
    ("https+unix://hooks.example.com", "must begin with https"),
    ("https://user:secret@hooks.example.com/", "must not contain credentials"),
    ("https://user@hooks.example.com/", "must not contain credentials"),
    ("https://@hooks.example.com/", "must not contain credentials"),
    ("https://hooks.example.com@127.0.0.1/", "must not contain credentials"),
    ("https://hooks.example.com/#x", "fragment"),
    ("https://127.0.0.1#@hooks.example.com/", "fragment"),
    ("https://hooks.example.com/a b", "a space"),
    (" https://hooks.example.com/", "a space"),
    ("https://hooks.example.com/\r\nhost: x", "a control"),
    ("https://hooks.example.com/\n", "a control"),
    ("https://hooks.example.com\t/", "a control"),
    ("https://hooks.example.com/\x00", "a control"),
    ("https://hooks.example.com\\@evil.net/", "a backslash"),
    ("https:\\\\hooks.example.com/", "a backslash"),
    ("https://b\u00fccher.example.org/", "non-ASCII"),
    ("https://hooks.example.com\u3002/", "non-ASCII"),
    ("https://\u2460.example.org/", "non-ASCII"),
    ("https://hooks.example.com/\u00fc", "non-ASCII"),
    ("https://hooks.example.com./", "ends in a dot"),
    ("https://hooks%2eexample.com/", "not a valid host name"),
    ("https://%68ooks.example.com/", "not a valid host name"),
    ("https:///path", "not a valid host name"),
    ("https://?x", "not a valid host name"),
    ("https://:443/", "not a valid host name"),
    ("https://a..example.org/", "not a valid host name"),
    ("https://.example.org/", "not a valid host name"),
    ("https://-a.example.org/", "not a valid host name"),
    ("https://*.example.org/", "not a valid host name"),
    ("https://" + "a" * 64 + ".example.org/", "not a valid host name"),
    ("https://" + "a." * 125 + "example.org/", "not a valid host name"),
    ("https://hooks.example.com:/", "not scheme"),
    ("https://hooks.example.com:44x/", "not scheme"),
    ("https://hooks.example.com:4:4/", "not scheme"),
    ("https://[::1/", "not scheme"),
    ("https://::1/", "not scheme"),
    ("https://[::1]x/", "not scheme"),
    ("https://hooks.example.com:0/", "the port must be 1 to 65535"),
    ("https://hooks.example.com:65536/", "the port must be 1 to 65535"),
    ("https://[::1%25lo]/", "must not have a zone"),
    ("https://[fe80::1%eth0]/", "must not have a zone"),
    ("https://[1.2.3.4]/", "not an IPv6 address"),
    ("https://[v1.x]/", "not an IPv6 address"),
    ("https://[]/", "not an IPv6 address"),
    ("https://[::1::]/", "not an IPv6 address"),
    ("https://hooks.example.com/a[0]", "percent-encode"),
    ('https://hooks.example.com/?"', "percent-encode"),
    ("https://hooks.example.com/" + "x" * URL_MAX, "the limit is 2048"),
)


def test_a_text_that_is_no_such_url_is_refused_in_words(subtests: pytest.Subtests) -> None:
    for url, why in WRONG:
        with subtests.test(repr(url[:60])):
            with pytest.raises(HeaderInvalid, match=why) as caught:
                TARGETS.check(url)
            assert caught.value.detail.startswith("x-oms-callbackurl: ")
            assert "secret" not in caught.value.detail


def test_the_longest_url_is_allowed() -> None:
    url = "https://hooks.example.com/"
    assert len(str(TARGETS.check(url + "x" * (URL_MAX - len(url))))) == URL_MAX


PATTERNS = (
    *("*", "https://*", "https://*.", "*.example.com", "hooks.example.com", "ftp://x", "https://"),
    *("https://x/", "https://x/path", "https://x?q", "https://x#f", "https://u@x", "https://x:0", "https://x:*"),
    *("https://*.*.com", "https://a.*.com", "https://*.[::1]", "https://*.2.3.4", "https://127.1", "https://x "),
    *("//x", "*://x", "https://b\u00fccher.de", "https://10.0.0.0/8"),
)


def test_a_pattern_that_is_none_stops_the_start(subtests: pytest.Subtests) -> None:
    for pattern in PATTERNS:
        with subtests.test(repr(pattern)), pytest.raises(ValueError, match="is not a target"):
            AllowedTargets.parse(["https://good.example.com", pattern])
