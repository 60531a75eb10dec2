"""A registered callback: its URL, how it is stored, and the history of its deliveries."""

import json
from collections import deque
from typing import Final, NamedTuple

from bridge.engine.destination_names import SubscriptionKey
from bridge.identity.principals import Identity
from bridge.wire.cloudevents import Mode

FAILURES_KEPT: Final = 10
_PREFIX: Final = "callback/"


class BatchOptions(NamedTuple):
    """A registration's POSTs are batches of messages."""

    size: int
    """Most messages of one POST."""
    form: str
    """The media type of the body, one of `bridge.wire.callback_batch.FORMS`."""


class Registration(NamedTuple):
    """The messages of one group are POSTed to one URL."""

    subscription: SubscriptionKey
    url: str
    credit: int
    """Most POSTs in flight at once."""
    gone: bool = False
    """The endpoint has answered 410 (Gone)."""
    batch: BatchOptions | None = None
    """None: each POST is one message."""
    mode: Mode | None = None
    """How each message is posted as a CloudEvent; None: in the form of a produce, or of the batch."""
    owner: Identity | None = None
    """Who has made it; None: the bridge had no identities then."""

    @property
    def batch_size(self) -> int:
        """Most messages of one POST."""
        return 1 if self.batch is None else self.batch.size

    def encode(self) -> str:
        """Return the metadata value to store under `metadata_key`."""
        owner = {} if self.owner is None else {"owner": self.owner.encode()}
        return json.dumps({"url": self.url, "credit": self.credit, "gone": self.gone, **self.describe_form(), **owner})

    def describe_form(self) -> dict[str, int | str]:
        """Return how messages are posted, as stored and as shown to clients."""
        if self.batch is not None:
            return {"maxMessages": self.batch.size, "form": self.batch.form}
        return {} if self.mode is None else {"form": self.mode.value}


class DeliveryFailure(NamedTuple):
    """One delivery that the endpoint did not accept."""

    time: int
    """ms since 1970."""
    message_id: str
    attempt: int
    """The message's deliveryCount."""
    status: int | None
    """None: there was no response."""
    reason: str


class DeliveryHistory:
    """Results of a group's deliveries since the bridge started. A new URL of the group continues it."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.failures: deque[DeliveryFailure] = deque(maxlen=FAILURES_KEPT)


def metadata_key(subscription: SubscriptionKey) -> str:
    """Return the key under which a group's registration is stored; neither name can contain a slash."""
    return f"{_PREFIX}{subscription.source}/{subscription.group}"


def decode_registration(key: str, value: str) -> Registration | None:
    """Read a stored registration; None if the key is of other metadata. Raises `ValueError` if the value is invalid."""
    if not key.startswith(_PREFIX):
        return None
    source, _, group = key.removeprefix(_PREFIX).partition("/")
    try:
        stored = json.loads(value)
        batch = BatchOptions(int(stored["maxMessages"]), str(stored["form"])) if "maxMessages" in stored else None
        return Registration(
            SubscriptionKey(source, group),
            str(stored["url"]),
            int(stored["credit"]),
            gone=bool(stored["gone"]),
            batch=batch,
            mode=Mode(stored["form"]) if batch is None and "form" in stored else None,
            owner=Identity.decode(stored["owner"]) if "owner" in stored else None,
        )
    except (LookupError, TypeError) as error:
        raise ValueError(f"the metadata of {key} lacks {error}") from None
