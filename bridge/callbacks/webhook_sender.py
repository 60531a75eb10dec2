"""Sends messages to an endpoint: encodes them as produce does, signs them and POSTs them.

Imported only if callbacks are on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from uuid_utils import uuid7

from bridge.callbacks.addresses import AddressPolicy
from bridge.callbacks.dialer import Dialer
from bridge.callbacks.egress import Egress
from bridge.callbacks.registration import Registration
from bridge.callbacks.registry import DeliveryOptions
from bridge.callbacks.retry import EndpointResponse
from bridge.callbacks.signing import Signer
from bridge.callbacks.targets import AllowedTargets
from bridge.callbacks.transaction_check import TransactionCheck
from bridge.engine.clock import Clock
from bridge.message import Message
from bridge.slicer import Slicer
from bridge.wire import cloudevents
from bridge.wire.callback_batch import encode_batch
from bridge.wire.gzip_body import inflate_message
from bridge.wire.headers import VERSION, encode


class WebhookSender:
    """Builds and sends the request of one delivery."""

    def __init__(self, egress: Egress, signer: Signer, clock: Clock) -> None:
        self._egress = egress
        self._signer = signer
        self._clock = clock

    async def __call__(self, registration: Registration, messages: Sequence[Message]) -> EndpointResponse:
        """Send one message, or a batch if the registration has batches, once. Raises `RequestBlocked`, `NoResponse`."""
        if registration.batch is None:
            (message,) = messages
            mode = registration.mode
            headers, body = (encode(message), message.body) if mode is None else cloudevents.encode(message, mode)
            # Adapters set an id. If one is missing, a random id may cause a duplicate. An empty id, or one made from
            # the content, would be worse: the endpoint would drop the second of two messages as a repetition.
            webhook_id = message.message_id or str(uuid7())
        else:
            content_type, body = encode_batch(messages, registration.batch.form)
            headers = [(b"x-oms-version", VERSION), (b"content-type", content_type)]
            webhook_id = str(uuid7())
        headers += self._signer.headers(webhook_id, self._clock.wall() // 1000, body)
        return await self._egress.post(registration.url, headers, body)


class SenderOptions(NamedTuple):
    """The settings that sending callbacks needs; `docs/configuration.md` explains each. Milliseconds, bytes."""

    targets: Sequence[str]
    networks: Sequence[str]
    secrets: Sequence[str]
    ca: Path | None
    in_flight: int
    timeout: int
    lease: int
    body_max: int
    """Largest inflated body."""


def build_delivery_options(options: SenderOptions, clock: Clock, slicer: Slicer) -> DeliveryOptions:
    """Build the sender. Raises `OSError` if the `ca` file has no certificates, `ValueError` for the other settings."""
    dialer = Dialer(AddressPolicy.parse(options.networks), options.ca)
    egress = Egress(AllowedTargets.parse(options.targets), dialer, options.timeout)
    signer = Signer.parse(options.secrets)
    sender, check = WebhookSender(egress, signer, clock), TransactionCheck(egress, signer, clock)

    async def inflate(message: Message) -> Message:
        return await slicer.run_alone(inflate_message(message, options.body_max))

    return DeliveryOptions(egress.check_url, sender, inflate, options.in_flight, options.lease, egress.close, check)
