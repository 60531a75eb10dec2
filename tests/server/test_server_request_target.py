"""Paths that are the same, and targets in absolute form."""

import pytest

from bridge.server.request_target import normal_path, to_origin_form


def test_only_unreserved_characters_are_decoded_and_only_once(subtests: pytest.Subtests) -> None:
    for raw, path in (
        (b"/v1/%6frders", "/v1/orders"),
        (b"/%41%5A%61%7a%30%39%2D%2e%5f%7E", "/AZaz09-._~"),
        (b"/a%2Fb%3f%25%20%00%C3%BC", "/a%2Fb%3f%25%20%00%C3%BC"),
        (b"/%2541%61", "/%2541a"),
        (b"/%61%", "/%61%"),  # broken: nothing is decoded, or `%%411` would become the escape `%A1`
        (b"/%%411", "/%%411"),
        (b"/%6", "/%6"),
        (b"/%zz%61", "/%zz%61"),
        (b"/\xff%61", "/\xffa"),
        (b"", ""),
    ):
        with subtests.test(repr(raw)):
            assert normal_path(raw) == path


def test_a_target_in_absolute_form_sets_the_host(subtests: pytest.Subtests) -> None:
    headers = [(b"a", b"b"), (b"host", b"old"), (b"c", b"d")]
    for method, target, origin, host in (
        (b"GET", b"http://new/v1/a?b=http://c/d", b"/v1/a?b=http://c/d", b"new"),
        (b"GET", b"HTTPS://new:1/v1", b"/v1", b"new:1"),
        (b"GET", b"http://new", b"/", b"new"),
        (b"GET", b"http://new?a", b"/?a", b"new"),
        (b"OPTIONS", b"http://new", b"*", b"new"),
        (b"OPTIONS", b"http://new/", b"/", b"new"),
        (b"GET", b"http://a:b@new/v1", b"/v1", b"a:b@new"),
        (b"GET", b"http:///v1", b"/v1", b""),
    ):
        with subtests.test(repr(target)):
            assert to_origin_form(method, target, headers) == (origin, [(b"host", host), (b"a", b"b"), (b"c", b"d")])
    for target in (b"/v1", b"*", b"ftp://new/v1", b"//new/v1", b"http:/v1", b"new:80"):
        with subtests.test(repr(target)):
            assert to_origin_form(b"GET", target, headers) == (target, headers)
