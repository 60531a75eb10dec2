"""`POST /v1/push` registers and stops callbacks, `GET /v1/callbacks` lists them."""

import json

from bridge.callbacks.registration import BatchOptions, Registration
from bridge.callbacks.registry import REGISTRATIONS_MAX, CallbackRegistry, JudgeOwner, Owner, describe
from bridge.engine.client_limits import OwnedShare, Share, client_of
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.push_consumer import CREDIT, CREDIT_MAX
from bridge.errors import BodyInvalid, HeaderInvalid
from bridge.http.params import (
    flag,
    merge,
    parse_params,
    parse_subscription,
    positive,
    required,
)
from bridge.http.request_and_reply import (
    CALLBACK_BATCH_MAX,
    OMS_VERSION,
    Reply,
    Request,
    json_reply,
)
from bridge.identity.access import Access
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation, Resource
from bridge.wire.callback_batch import choose_form
from bridge.wire.cloudevents import accepted_mode


class CallbackEndpoints:
    """Registers, stops and lists callbacks."""

    def __init__(self, engine: Engine, callbacks: CallbackRegistry) -> None:
        self._engine = engine
        self._callbacks = callbacks
        self._registrations = OwnedShare[SubscriptionKey](
            Share(REGISTRATIONS_MAX, engine.client_share, "callbacks", "the limit of callbacks")
        )
        """Those that clients have made since the bridge started."""

    async def register(self, request: Request) -> Reply:
        """Deliver the messages of a group to `x-oms-callbackurl`; an empty value stops the delivery."""
        params = parse_params(request.headers.parameters, request.query, request.route)
        key = parse_subscription(params)
        url = required(params, "callbackurl", "the URL to post messages to; an empty value stops the callback")
        if "ack" in params and not flag(params, "ack"):
            raise HeaderInvalid("x-oms-ack: false is not allowed; the 2xx of the endpoint acknowledges a callback.")
        if request.body:
            raise BodyInvalid("A registration consists of headers only: send no body.")
        owner = _owner(request.caller, key)
        if not url:
            await self._callbacks.stop(key, owner)
            _note("callback stopped", request.caller, key)
            self._registrations.release(key)
            return Reply(204, [OMS_VERSION])
        credit = positive(params, "credit", CREDIT, CREDIT_MAX)
        size = positive(params, "maxmessages", None, CALLBACK_BATCH_MAX)
        accept = request.headers.plain.get(b"accept")
        batch = None if size is None else BatchOptions(size, choose_form(accept))
        mode = accepted_mode(accept) if size is None else None
        is_new = self._registrations.take(key, client_of(request.peer))
        try:
            entry, created = await self._callbacks.register(key, url, credit, batch, mode, owner=owner)
        except BaseException:
            if is_new:
                self._registrations.release(key)
            raise
        _note("callback registered", request.caller, key)
        document = describe(entry, self._callbacks.stored_in, self._engine.clock)
        return json_reply(201 if created else 200, json.dumps(document).encode())

    async def listing(self, request: Request) -> Reply:
        """List every registration, by name."""
        merge(request.headers.parameters, request.query, request.route)  # raises for an unknown parameter
        stored_in, clock = self._callbacks.stored_in, self._engine.clock
        entries = self._callbacks.entries
        if (caller := request.caller) is not None:
            entries = [entry for entry in entries if _may_change(caller, entry.registration)]
        return json_reply(200, json.dumps([describe(entry, stored_in, clock) for entry in entries]).encode())


def _owner(caller: Caller | None, key: SubscriptionKey) -> Owner | None:
    """Return who makes or stops a registration; None: the bridge has no identities. Raises `NotPermitted`."""
    if caller is None:
        return None
    caller.check(Operation.CALLBACK, *key)

    def check(registration: Registration) -> None:
        if not _may_change(caller, registration):
            raise caller.not_owner(Operation.CALLBACK, *key)

    return Owner(caller.identity, check)


def _may_change(caller: Caller, registration: Registration) -> bool:
    """Return whether the caller has made a registration, or may administer its group."""
    return caller.owns(registration.owner) or caller.may(Operation.ADMIN, Resource(*registration.subscription))


def _note(event: str, caller: Caller | None, key: SubscriptionKey) -> None:
    if caller is not None:
        caller.note(event, f"{key.source}, group {key.group}")


def judge_registrations(access: Access) -> JudgeOwner:
    """Return what judges whether the owner of a registration may still have it."""

    def judge(registration: Registration) -> str | None:
        return access.judge_owner(registration.owner, Operation.CALLBACK, Resource(*registration.subscription))

    return judge
