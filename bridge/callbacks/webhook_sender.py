"""Sends messages to an endpoint, and asks producers about open transactions: signed POSTs.

Imported only if callbacks are on.
"""

import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from uuid_utils import uuid7

from adapters.base import Transaction
from bridge.callbacks.allowed_targets import AddressPolicy, AllowedTargets
from bridge.callbacks.connection import Dialer
from bridge.callbacks.egress import Egress
from bridge.callbacks.registration import Registration
from bridge.callbacks.registry import DeliveryOptions
from bridge.callbacks.retry_policy import EndpointResponse, RequestFailed
from bridge.engine.clock import Clock
from bridge.engine.open_transactions import Decision
from bridge.message import Message
from bridge.slicer import Slicer
from bridge.wire import cloudevents
from bridge.wire.callback_batch import encode_batch
from bridge.wire.gzip_body import inflate_message
from bridge.wire.headers import VERSION, encode
from bridge.wire.webhook_signatures import Signer


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


_MEMBER: Final = "decision"
"""The member of the answer that says whether to commit."""

_log = logging.getLogger("bridge.callbacks")


class TransactionCheck:
    """Sends the question and reads the answer."""

    def __init__(self, egress: Egress, signer: Signer, clock: Clock) -> None:
        self._egress = egress
        self._signer = signer
        self._clock = clock

    async def __call__(self, transaction: Transaction) -> Decision:
        """Return the producer's decision; `UNKNOWN` if it has not answered with one."""
        document = {
            "transactionId": transaction.id,
            "began": transaction.began,
            "messages": transaction.messages,
        }
        body = json.dumps(document).encode()
        headers = [(b"x-oms-version", VERSION), (b"content-type", b"application/json")]
        headers += self._signer.headers(str(uuid7()), self._clock.wall() // 1000, body)
        try:
            decision = read_decision(await self._egress.post(transaction.check or "", headers, body))
        except RequestFailed as error:
            _log.warning(
                "the check of a transaction failed", extra={"transaction": transaction.id, "reason": str(error)}
            )
            return Decision.UNKNOWN
        _log.info("a transaction was checked", extra={"transaction": transaction.id, "decision": decision.value})
        return decision


def read_decision(response: EndpointResponse) -> Decision:
    """Return the decision of an answer `{"decision": "commit"}` with status 200; `UNKNOWN` for any other answer."""
    if response.status != HTTPStatus.OK or response.json is None:
        return Decision.UNKNOWN
    try:
        return Decision(json.loads(response.json)[_MEMBER])
    except (ValueError, LookupError, TypeError, RecursionError):
        return Decision.UNKNOWN
