"""What a user does with the permissions of a page, step by step."""

from uuid import uuid4

from tests.conformance.conversation import Conversation, Taken, now


async def produces(talk: Conversation) -> None:
    await talk.produce(b"one", messagekey="k")


async def consumes(talk: Conversation) -> None:
    await talk.produce(b"one", messagekey="k")
    await talk.ack((await talk.take()).receipt)


async def buries(talk: Conversation) -> None:
    poison = uuid4().bytes  # another one than in an earlier attempt
    await talk.produce(poison)
    await talk.nack((await take_that(talk, poison)).receipt)
    talk.destination += ".dlq"
    await take_that(talk, poison)


async def waits_for(talk: Conversation, delay: int) -> None:
    late = uuid4().bytes
    await talk.produce(late, delaytime=delay)
    taken = await take_that(talk, late)
    assert now() >= int(taken.headers["x-oms-h-borntimestamp"]) + delay


async def take_that(talk: Conversation, body: bytes) -> Taken:
    """Pull until this body comes, and settle what comes before it."""
    while (taken := await talk.take()).body != body:
        await talk.ack(taken.receipt)
    return taken


async def calls_back(talk: Conversation) -> None:
    headers = {"version": "1.0.0", "source": "orders", "consumerid": "billing", "callbackurl": "http://127.0.0.1:9/"}
    asked = {f"x-oms-{name}": value for name, value in headers.items()}
    answer = await talk.http.post("/v1/push", headers=asked)
    assert answer.status_code in {200, 201}, answer.text
    answer = await talk.http.post("/v1/push", headers=asked | {"x-oms-callbackurl": ""})
    assert answer.status_code == 204, answer.text
