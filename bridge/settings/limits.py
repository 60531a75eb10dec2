"""The sections `limits` and `timeouts`, with the base and the units of all sections."""

from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, TypeAdapter, model_validator

GIB: Final = 1 << 30
HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR

READ_BYTES: Final = BeforeValidator(TypeAdapter(ByteSize).validate_python)
Bytes = Annotated[int, READ_BYTES]


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LimitsSettings(Section):
    """Limits for one client, and for all clients together."""

    body: Bytes = Field(
        default=4 << 20, ge=1, le=GIB, description="Largest body, also after decompression; above it 413."
    )
    headers: Bytes = Field(
        default=32 << 10, ge=1024, le=1 << 20, description="Largest header block of a request or a part; above it 431."
    )
    batch: int = Field(default=1000, ge=1, le=100_000, description="Maximum messages in one batch; above it 413.")
    in_flight: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Maximum messages being published at a time; above it 503."
    )
    in_flight_bytes: Bytes = Field(
        default=64 << 20,
        ge=1,
        le=64 * GIB,
        description="Maximum bytes of messages being published at a time; above it 503.",
    )
    quota: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Maximum messages per second for one destination; above it 429. Unset: no limit.",
    )
    prefetch: int = Field(
        default=1024,
        ge=1,
        le=100_000,
        description="Maximum messages in the prefetch buffer of one group, leased ones included.",
    )
    prefetch_bytes: Bytes = Field(
        default=64 << 20,
        ge=1,
        le=64 * GIB,
        description="Maximum bytes of messages in the prefetch buffer of one group.",
    )
    connections: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Maximum connections to the data port; more are closed.",
    )
    memory: Bytes = Field(
        default=256 << 20,
        ge=1 << 20,
        le=64 * GIB,
        description="Maximum bytes of requests and replies that are held for clients; above it 503.",
    )
    waiting_pulls: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Maximum waiting pulls and open streams; above it 503."
    )
    destinations: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Maximum destinations that clients have this bridge create; above it 503.",
    )
    groups: int = Field(
        default=1000, ge=1, le=1_000_000, description="Maximum groups that clients use at this bridge; above it 503."
    )
    delayed: int = Field(
        default=1_000_000,
        ge=1,
        le=100_000_000,
        description="Maximum delayed messages that this bridge has accepted and that are not due; above it 503.",
    )
    delayed_bytes: Bytes = Field(
        default=GIB, ge=1, le=1024 * GIB, description="Maximum bytes of these, bodies and headers; above it 503."
    )
    transactions: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Maximum open transactions that clients began at this bridge; above it 503.",
    )
    transaction_messages: int = Field(
        default=1000, ge=1, le=100_000, description="Maximum messages of one transaction; above it 413."
    )
    transaction_bytes: Bytes = Field(
        default=16 << 20, ge=1, le=GIB, description="Maximum bytes of these, unless it is only one; above it 413."
    )
    prepared_bytes: Bytes = Field(
        default=256 << 20,
        ge=1,
        le=64 * GIB,
        description="Maximum bytes of the messages of all open transactions at this bridge; above it 503.",
    )
    client_share: int = Field(
        default=50,
        ge=1,
        le=100,
        description="How much of `connections`, `memory`, `waiting_pulls`, `destinations`, `groups`, `delayed`,"
        " `delayed_bytes`, `transactions`, `prepared_bytes` and of the 1,000 callbacks one client address may use, in"
        " percent; above it 429. Localhost has a share of the first two only.",
    )
    metric_labels: int = Field(
        default=100,
        ge=0,
        le=10_000,
        description="Destinations, and groups, that have metrics of their own; all others are summed as `other`.",
    )
    auto_create: bool = Field(
        default=True, description="Create a destination when a client first uses it; false: an unknown one is a 404."
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

    body: int = Field(
        default=30_000, ge=1, le=HOUR, description="How long a client may take to send a body, ms; then 408."
    )
    produce: int = Field(
        default=30_000, ge=1, le=HOUR, description="How long the backend may take to confirm a message, ms; then 504."
    )
    stall: int = Field(
        default=300_000,
        ge=1,
        le=DAY,
        description="How long a client may leave 128 KiB of a response unread, ms; then the response ends.",
    )
