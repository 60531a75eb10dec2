"""Query parameters instead of headers, and pages of other origins."""

import pytest

from .conversation import Conversation, refused

pytestmark = pytest.mark.wire


async def test_a_pull_may_come_without_any_header(talk: Conversation) -> None:
    """
    > Every request header of pull and push may also come as a query parameter without the `x-oms-` prefix
    > (`?version=1.0.0&source=orders&consumerid=app&ack=true`), because a browser's `EventSource` cannot set headers;
    """
    await talk.produce(b"here")
    query = f"version=1.0.0&source={talk.destination}&consumerid={talk.group}&ack=true&waitmills=20000&leasemills=5000"
    answer = await talk.http.get(f"/v1/messages?{query}&requestid=r%201")
    assert (answer.status_code, answer.content) == (200, b"here")
    receipt = answer.headers["x-oms-receipt"]
    again = await talk.get(requestid="r 1")
    assert again.headers["x-oms-receipt"] == receipt
    settled = await talk.http.post(f"/v1/ack?version=1.0.0&receipt={receipt}")
    assert settled.status_code == 204
    await talk.nothing()


async def test_a_header_wins_over_an_absent_parameter_and_agrees_with_an_equal_one(talk: Conversation) -> None:
    """
    > a header wins, both with different values is a 400.
    """
    await talk.produce(b"here")
    answer = await talk.get(params={"consumerid": talk.group, "waitmills": "20000"})
    assert answer.status_code == 200


async def test_a_header_and_a_parameter_that_differ_are_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > a header wins, both with different values is a 400.
    """
    await talk.produce(b"here")
    for name, value in (("consumerid", "another"), ("ack", "false"), ("version", "1.0.1")):
        with subtests.test(name):
            assert name in refused(await talk.get(params={name: value}), 400, "header-repeated")
    assert (await talk.take()).count == 1


async def test_a_parameter_that_comes_twice_is_refused(talk: Conversation) -> None:
    """
    > a header wins, both with different values is a 400.
    """
    answer = await talk.http.get(f"/v1/messages?source={talk.destination}&source={talk.destination}")
    assert "source" in refused(answer, 400, "header-repeated")


async def test_an_unknown_or_broken_parameter_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Every request header of pull and push may also come as a query parameter without the `x-oms-` prefix
    > (`?version=1.0.0&source=orders&consumerid=app&ack=true`), because a browser's `EventSource` cannot set headers;
    """
    for query in ("colour=red", "x-oms-source=a", "h-destination=a", "source=%ff", "=", "source"):
        with subtests.test(query):
            answer = await talk.http.get(f"/v1/messages?{query}&consumerid=g", headers={"x-oms-version": "1.0.0"})
            refused(answer, 400, "destination-invalid" if query == "source" else "header-invalid")


async def test_a_page_of_another_origin_is_refused(talk: Conversation) -> None:
    """
    > Cross-origin requests are refused unless the settings name the origin.
    """
    origin = ("origin", "https://elsewhere.example")
    assert "elsewhere.example" in refused(await talk.post(b"forged", [origin]), 403, "forbidden")
    await talk.produce(b"kept")
    refused(await talk.get([origin], ack=None), 403, "forbidden")
    assert (await talk.take()).body == b"kept"
    await talk.nothing()


async def test_a_page_of_the_bridges_own_origin_is_served(talk: Conversation) -> None:
    """
    > Cross-origin requests are refused unless the settings name the origin.
    """
    await talk.produce(b"mine", [("origin", str(talk.http.base_url).rstrip("/"))])
