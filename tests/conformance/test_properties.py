"""Names and values of user properties, and text in headers."""

import pytest

from .conversation import Conversation, refused

pytestmark = pytest.mark.slow_on_brokers

NAMES = ["plain", "with.dots_and-dashes", "OrderId", "spaces in it", "Zürich", "100%", "a:b", "x" * 200, "*", "a*"]


def escaped(name: str) -> bytes:
    plain = b"abcdefghijklmnopqrstuvwxyz0123456789._-"
    return b"".join(b"%c" % byte if byte in plain else b"%%%02x" % byte for byte in name.encode())


async def test_a_property_name_is_kept_exactly(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > - User properties: `x-oms-p-<name>`. A property name is kept exactly:

    > every character outside `a-z 0-9 . _ -` travels as `%xx` (UTF-8 bytes), `%` being a legal character of a
    > field name.
    """
    for name in NAMES:
        with subtests.test(name[:20]):
            await talk.produce(pairs=[(b"x-oms-p-" + escaped(name), b"value")])
            taken = await talk.take()
            await talk.ack(taken.receipt)
            names = [raw.lower() for raw, _ in taken.headers.raw if raw.lower().startswith(b"x-oms-p-")]
            assert names == [b"x-oms-p-" + escaped(name)]


@pytest.mark.wire
async def test_a_name_typed_by_hand_becomes_lower_case(talk: Conversation) -> None:
    """
    > `x-oms-p-OrderId` typed by hand becomes `orderid`; `x-oms-p-%4frder%49d` is `OrderId`.

    > - Field names arrive in lower case over HTTP/2, so every name here is matched case-insensitively and sent
    > in lower case.
    """
    await talk.produce(pairs=[("X-OMS-P-OrderId", "by hand"), ("x-oms-p-%4frder%49d", "exact")])
    taken = await talk.take()
    assert taken.headers["x-oms-p-orderid"] == "by hand"
    assert taken.headers["x-oms-p-%4frder%49d"] == "exact"
    assert all(raw == raw.lower() for raw, _ in taken.headers.raw)


async def test_printable_ascii_travels_as_it_is(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > - Values: printable ASCII travels as it is, `%` and spaces too: what a user typed is what a consumer
    > reads.
    """
    for value in ("a b", "100%", "%41", "UTF-8''x", 'quote " and \\', "~!@#$^&*()", "", "a, b"):
        with subtests.test(repr(value)):
            await talk.produce(pairs=[("x-oms-p-said", value)], correlationid=value)
            taken = await talk.take()
            await talk.ack(taken.receipt)
            assert (taken.headers["x-oms-p-said"], taken.headers["x-oms-h-correlationid"]) == (value, value)


async def test_anything_else_travels_extended(talk: Conversation) -> None:
    """
    > Anything else travels as an RFC 8187 extended value under the name with `*`:
    > `x-oms-p-city*: UTF-8''Z%C3%BCrich`.
    """
    extended = [("x-oms-p-city*", "UTF-8''Z%C3%BCrich"), ("x-oms-h-messagekey*", "utf-8'de'stra%c3%9fe")]
    await talk.produce(pairs=extended)
    taken = await talk.take()
    assert taken.headers["x-oms-p-city*"] == "UTF-8''Z%C3%BCrich"
    assert taken.headers["x-oms-h-messagekey*"] == "UTF-8''stra%C3%9Fe"
    assert "x-oms-p-city" not in taken.headers


@pytest.mark.wire
async def test_an_extended_value_of_plain_ascii_comes_out_plain(talk: Conversation) -> None:
    """
    > Anything else travels as an RFC 8187 extended value under the name with `*`:
    > `x-oms-p-city*: UTF-8''Z%C3%BCrich`.
    """
    await talk.produce(pairs=[("x-oms-p-city*", "UTF-8''Bonn")])
    assert (await talk.take()).headers["x-oms-p-city"] == "Bonn"


@pytest.mark.wire
async def test_raw_bytes_outside_ascii_are_refused_with_the_form_to_send(talk: Conversation) -> None:
    """
    > Raw bytes outside ASCII are a 400, whose detail shows the extended form.
    """
    for name in (b"x-oms-p-city", b"x-oms-h-messagekey"):
        detail = refused(await talk.post(pairs=[(name, "Zürich".encode())]), 400, "header-invalid")
        assert f"{name.decode()}*: UTF-8''Z%C3%BCrich" in detail
    await talk.nothing()


async def test_control_characters_can_never_break_a_response(talk: Conversation) -> None:
    """
    > What a broker hands us is untrusted: CR, LF, NUL and non-ASCII can never break a response.
    """
    hostile = "UTF-8''%0D%0Ax-oms-receipt%3A%20forged%00%1B%5B2J"
    await talk.produce(pairs=[("x-oms-p-note*", hostile), ("x-oms-h-bornhost*", "UTF-8''a%0Ab")])
    taken = await talk.take()
    assert taken.headers["x-oms-p-note*"] == hostile
    assert taken.headers["x-oms-h-bornhost*"] == "UTF-8''a%0Ab"
    assert "forged" not in taken.receipt


@pytest.mark.wire
async def test_what_is_not_text_or_not_a_name_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Anything else travels as an RFC 8187 extended value under the name with `*`:
    > `x-oms-p-city*: UTF-8''Z%C3%BCrich`.
    """
    for pair in (
        (b"x-oms-p-city", b"Z\xfcrich"),
        (b"x-oms-p-city*", b"Z%C3%BCrich"),
        (b"x-oms-p-city*", b"UTF-8''Z%FCrich"),
        (b"x-oms-p-city*", b"UTF-8''Z%C3%B"),
        (b"x-oms-p-city*", b"latin-1''Z%FCrich"),
        (b"x-oms-p-%zz", b"x"),
        (b"x-oms-p-%ff", b"x"),
        (b"x-oms-p-", b"x"),
        (b"x-oms-p-" + b"n" * 250, b"x"),
        (b"x-oms-h-colour", b"red"),
        (b"x-oms-colour", b"red"),
    ):
        with subtests.test(repr(pair)[:60]):
            assert "x-oms-" in refused(await talk.post(pairs=[pair]), 400, "header-invalid")
    await talk.nothing()


@pytest.mark.wire
async def test_a_repeated_header_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > - A repeated `x-oms-*` header is a 400,
    """
    for pairs in (
        [("x-oms-p-a", "1"), ("x-oms-p-a", "1")],
        [("x-oms-p-a", "1"), ("x-oms-p-a*", "UTF-8''2")],
        [("x-oms-p-a", "1"), ("x-oms-p-%61", "2")],
        [("x-oms-h-messagekey", "1"), ("x-oms-h-messagekey", "2")],
        [("x-oms-h-messagekey", "1"), ("x-oms-h-messagekey*", "UTF-8''2")],
        [("x-oms-require", "qos"), ("x-oms-require", "qos")],
        [("x-oms-version", "1.0.0")],
    ):
        with subtests.test(" + ".join(name for name, _ in pairs)):
            assert pairs[-1][0] in refused(await talk.post(pairs=pairs), 400, "header-repeated")
    await talk.nothing()
