"""The sections `limits` and `timeouts`, with the base and the units of all sections."""

from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bridge.settings.values import read_bytes, refuse_switch

GIB: Final = 1 << 30
HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR

READ_BYTES: Final = BeforeValidator(read_bytes)
Bytes = Annotated[int, READ_BYTES]


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _switches_are_no_numbers(cls, value: object, info: ValidationInfo) -> object:
        return refuse_switch(value, cls.model_fields[str(info.field_name)].annotation)


class LimitsSettings(Section):
    """Limits for one client, and for all clients together."""

    body: Bytes = Field(default=4 << 20, ge=1, le=GIB, description="Largest body, also after decompression (413).")
    headers: Bytes = Field(
        default=32 << 10, ge=1024, le=1 << 20, description="Largest header block of a request or a part (431)."
    )
    batch: int = Field(default=1000, ge=1, le=100_000, description="Messages in one batch (413).")
    in_flight: int = Field(default=10_000, ge=1, le=1_000_000, description="Messages being published at a time (503).")
    in_flight_bytes: Bytes = Field(
        default=64 << 20,
        ge=1,
        le=64 * GIB,
        description="Bytes of messages being published, bodies and headers (503).",
    )
    quota: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Messages per second for one destination (429). Unset: no limit.",
    )
    prefetch: int = Field(
        default=1024,
        ge=1,
        le=100_000,
        description="Messages in the prefetch buffer of one group, leased ones included.",
    )
    prefetch_bytes: Bytes = Field(
        default=64 << 20,
        ge=1,
        le=64 * GIB,
        description="Bytes of that buffer.",
    )
    connections: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Connections to the data port; more are closed.",
    )
    memory: Bytes = Field(
        default=256 << 20,
        ge=1 << 20,
        le=64 * GIB,
        description="Bytes of requests and replies that are held for clients (503).",
    )
    waiting_pulls: int = Field(default=20_000, ge=1, le=1_000_000, description="Waiting pulls and open streams (503).")
    destinations: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Destinations that clients have this bridge create (503).",
    )
    groups: int = Field(default=1000, ge=1, le=1_000_000, description="Groups that clients use at this bridge (503).")
    delayed: int = Field(
        default=1_000_000,
        ge=1,
        le=100_000_000,
        description="Delayed messages of this bridge that are not due (503).",
    )
    delayed_bytes: Bytes = Field(
        default=GIB, ge=1, le=1024 * GIB, description="Bytes of these, bodies and headers (503)."
    )
    transactions: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Open transactions that clients began at this bridge (503).",
    )
    transaction_messages: int = Field(default=1000, ge=1, le=100_000, description="Messages of one transaction (413).")
    transaction_bytes: Bytes = Field(
        default=16 << 20, ge=1, le=GIB, description="Bytes of these, unless it is only one (413)."
    )
    prepared_bytes: Bytes = Field(
        default=256 << 20,
        ge=1,
        le=64 * GIB,
        description="Bytes of the messages of all open transactions (503).",
    )
    client_share: int = Field(
        default=50,
        ge=1,
        le=100,
        description="Percent of `connections`, `memory`, `waiting_pulls`, `destinations`, `groups`, `delayed`,"
        " `delayed_bytes`, `transactions`, `prepared_bytes` and the 1,000 callbacks that one client"
        " address may use (429), and of `dedup.bytes`. Localhost has a share of the first two only.",
    )
    metric_labels: int = Field(
        default=100,
        ge=0,
        le=10_000,
        description="Destinations, and groups, with metrics of their own; others are summed as `other`.",
    )
    auto_create: bool = Field(
        default=True, description="Create destinations on first use; false: an unknown one is a 404."
    )

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.in_flight_bytes < self.body:
            raise ValueError("limits.in_flight_bytes must be at least limits.body: the largest body must fit")
        if self.memory < 2 * self.body:
            raise ValueError("limits.memory must be at least twice limits.body: a request and a reply must fit")
        return self


class TimeoutsSettings(Section):
    """How long the bridge waits for clients and for the backend, in milliseconds."""

    body: int = Field(default=30_000, ge=1, le=HOUR, description="Time for a client to send a body, ms (408).")
    produce: int = Field(
        default=30_000, ge=1, le=HOUR, description="Time for the backend to confirm a message, ms (504)."
    )
    stall: int = Field(
        default=300_000,
        ge=1,
        le=DAY,
        description="How long a client may leave 128 KiB of a response unread, ms; then the response ends.",
    )
