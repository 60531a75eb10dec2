"""Text beyond ASCII comes back as it was sent, with the memory backend; Kafka and RabbitMQ have their own."""

import pytest

from tests.conformance.conversation import Conversation, connection
from tests.http import texts
from tests.launch import Bridge


@pytest.mark.parametrize("form", texts.FORMS)
async def test_it_comes_back_as_it_was_sent(bridge: Bridge, form: str) -> None:
    async with connection(bridge.url) as http:
        talk = Conversation(http)
        sent = texts.messages(form)
        await texts.produce(talk, form, sent)
        await texts.come_back(talk, sent)
