"""Every setting but `limits` and `timeouts`: name, type, range, default, its line of docs/configuration.md."""

from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bridge.settings import values
from bridge.settings.auth import AuthSettings
from bridge.settings.limits import DAY, GIB, HOUR, Bytes, LimitsSettings, Section, TimeoutsSettings
from bridge.settings.values import Address

PREFIX: Final = "OMS_"
NESTED: Final = "__"
SOURCES: Final[ContextVar[tuple[PydanticBaseSettingsSource, ...]]] = ContextVar("SOURCES", default=())
"""The sources of `load`, the strongest first. Empty: `Settings` built directly reads neither variables nor files."""

Listen = Annotated[Address, BeforeValidator(values.read_address)]
Readable = Annotated[Path, AfterValidator(values.check_readable)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(values.check_host)], ...], BeforeValidator(values.split_commas)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(values.check_origin)], ...], BeforeValidator(values.split_commas)
]
HeaderName = Annotated[str, AfterValidator(values.check_header_name)]
HeaderNames = Annotated[tuple[HeaderName, ...], BeforeValidator(values.split_commas)]
Texts = Annotated[tuple[str, ...], BeforeValidator(values.split_commas)]


class TlsSettings(Section):
    """TLS on the data port; without it the data port speaks cleartext."""

    certificate: Readable = Field(description="PEM file of the certificate and its chain.")
    key: Readable = Field(description="PEM file of its private key.")
    client_ca: Readable | None = Field(
        default=None, description="PEM file of authorities: each client then needs a certificate of theirs."
    )


class BindingSettings(Section):
    """How strictly the bridge follows the OpenMessaging HTTP binding."""

    strict: bool = Field(default=False, description="Require every header that the binding marks Required.")


class DedupSettings(Section):
    """Retries of a produce that store nothing again."""

    window: int = Field(
        default=120_000,
        ge=0,
        le=86_400_000,
        description="How long messageIds and idempotency keys are remembered, ms. 0: not at all.",
    )
    bytes: Bytes = Field(
        default=64 << 20,
        ge=1 << 20,
        le=64 * GIB,
        description="Memory for that; above it, or its share, the client with the most loses its oldest.",
    )


class DeliverySettings(Section):
    """Leases and redelivery."""

    max_deliveries: int = Field(
        default=16,
        ge=1,
        le=1_000_000,
        description="Deliveries of a message to a group before it becomes a dead letter.",
    )
    lease: int = Field(default=30_000, ge=1, le=DAY, description="Lease of a pull that requests none, ms.")
    max_lease: int = Field(default=900_000, ge=1, le=DAY, description="Longest lease that a client may request, ms.")
    new_group: Literal["earliest", "latest"] = Field(
        default="earliest", description="Where a new group starts: at the oldest message kept, or after the newest."
    )
    group_idle: int = Field(
        default=300_000,
        ge=1,
        le=DAY,
        description="How long an unused group stays open, ms; its state is kept.",
    )

    @model_validator(mode="after")
    def _lease_in_range(self) -> Self:
        if self.lease > self.max_lease:
            raise ValueError("delivery.lease must not be above delivery.max_lease")
        return self


class HttpSettings(Section):
    """Hosts and origins that may use the data port: protects against web pages that rebind DNS to loopback."""

    hosts: Hosts = Field(
        default=(), description="Host names accepted besides loopback and the listen address; `*`: any."
    )
    origins: Origins = Field(default=(), description="Origins of web pages that may send cross-origin requests.")


class CallbacksSettings(Section):
    """Callback push. Off until `targets` names an endpoint."""

    targets: Annotated[Texts, AfterValidator(values.check_targets)] = Field(
        default=(),
        description="Endpoints that are allowed, `scheme://host[:port]`; `*.` before a name: all names below it."
        " Unset: callbacks are off.",
    )
    networks: Annotated[Texts, AfterValidator(values.check_networks)] = Field(
        default=(),
        description="Private networks (CIDR) in which endpoints may be.",
    )
    secrets: Annotated[Texts, AfterValidator(values.check_secrets)] = Field(
        default=(),
        repr=False,
        description="Signing secrets, `whsec_` and base64 of 24 to 64 bytes, the newest first.",
    )
    secrets_file: Readable | None = Field(
        default=None,
        description="File with the secrets in one line, instead of `callbacks.secrets`.",
    )
    ca: Readable | None = Field(
        default=None, description="PEM file of the authorities for endpoints, instead of the public ones."
    )
    in_flight: int = Field(default=64, ge=1, le=64, description="POSTs in flight for one registration.")
    timeout: int = Field(default=15_000, ge=1, le=HOUR, description="Time for a POST and its response, ms.")

    @model_validator(mode="before")
    @classmethod
    def _read_secrets_file(cls, given: Any) -> Any:  # noqa: ANN401 - the model reports what is not a mapping
        if not isinstance(given, dict) or (path := given.get("secrets_file")) is None:
            return given
        if "secrets" in given:
            raise ValueError("callbacks.secrets and callbacks.secrets_file are both set; keep one of them")
        try:
            values.check_readable(Path(str(path)))
        except ValueError:
            return given  # the validator of the setting reports it
        return given | {"secrets": values.read_secret(Path(str(path)), "callbacks.secrets_file", "the secrets")}

    @model_validator(mode="after")
    def _signed(self) -> Self:
        if self.targets and not self.secrets:
            raise ValueError("callbacks.targets needs callbacks.secrets or callbacks.secrets_file to sign with")
        return self


class VerifySettings(Section):
    """How the requests of a webhook are signed."""

    scheme: Literal["standard-webhooks", "github", "stripe", "slack", "hmac"] = Field(
        description="How the sender signs; see docs/webhooks.md."
    )
    secret_file: Readable = Field(description="File with the sender's secret; of several lines, each is accepted.")
    tolerance: int = Field(
        default=300_000,
        ge=1000,
        le=DAY,
        description="How old a signature with a time may be, or how far ahead, ms.",
    )
    header: HeaderName | None = Field(default=None, description="Header with the signature, only for `hmac`.")

    @model_validator(mode="after")
    def _header_is_for_hmac(self) -> Self:
        if (self.header is not None) != (self.scheme == "hmac"):
            raise ValueError("verify.header of a destination goes with the scheme hmac, which needs it")
        return self


class DestinationSettings(Section):
    """What holds for one destination, for requests that name it in their URL."""

    properties_from_headers: HeaderNames = Field(
        default=(), description="HTTP headers that become properties of the message."
    )
    verify: VerifySettings | None = Field(
        default=None, description="Set: the destination only takes requests with a valid signature."
    )


class TracingSettings(Section):
    """Spans of messages, as OpenTelemetry. Off until `endpoint` names a receiver."""

    endpoint: Annotated[str, AfterValidator(values.check_endpoint)] | None = Field(
        default=None,
        description="URL of the OTLP receiver, such as `http://collector:4318`; needs the extra"
        " `openmessaging-bridge[otel]`. Unset: no tracing.",
    )
    protocol: Literal["http", "grpc"] = Field(
        default="http", description="OTLP over HTTP, with `/v1/traces` behind the URL, or over gRPC."
    )
    ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of the messages without trace context that are traced; for others, the producer decides.",
    )
    metrics: int | None = Field(
        default=None,
        ge=1000,
        le=HOUR,
        description="Time between exports of the metrics, ms. Unset: `/metrics` only.",
    )

    @model_validator(mode="after")
    def _metrics_need_a_receiver(self) -> Self:
        if self.metrics is not None and self.endpoint is None:
            raise ValueError("tracing.metrics needs tracing.endpoint: the receiver")
        return self


class LogSettings(Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest severity that is logged."
    )
    format: Literal["text", "json"] | None = Field(
        default=None, description="Unset: text if standard error is a terminal, else JSON."
    )


class Settings(BaseSettings):
    """All settings. `load` reads variables and files; `Settings()` does not."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_prefix=PREFIX,
        env_nested_delimiter=NESTED,
        enable_decoding=False,  # lists in variables are separated by commas, not written as JSON
    )

    backend: Annotated[str, AfterValidator(values.check_backend)] = Field(
        default="memory://", description="URL of the backend; its password is never shown."
    )
    backend_file: Path | None = Field(default=None, description="File with that URL, instead of `backend`.")
    listen: Listen = Field(default=Address("127.0.0.1", 8080), description="Data port.")
    management: Listen = Field(default=Address("127.0.0.1", 9090), description="Management port: probes, metrics.")
    server: Literal["auto", "hypercorn", "granian"] = Field(
        default="auto",
        description="HTTP server; auto: granian with the extra `openmessaging-bridge[fast]`, else hypercorn.",
    )
    tls: TlsSettings | None = Field(default=None, description="TLS on the data port.")
    binding: BindingSettings = Field(
        default=BindingSettings(), description="How strictly the bridge follows the binding."
    )
    dedup: DedupSettings = Field(default=DedupSettings(), description="Retries of a produce that store nothing again.")
    limits: LimitsSettings = Field(default=LimitsSettings(), description="Limits.")
    timeouts: TimeoutsSettings = Field(default=TimeoutsSettings(), description="Timeouts.")
    delivery: DeliverySettings = Field(default=DeliverySettings(), description="Leases and redelivery.")
    http: HttpSettings = Field(default=HttpSettings(), description="Hosts and origins.")
    callbacks: CallbacksSettings = Field(default=CallbacksSettings(), description="Callback push.")
    destinations: dict[str, DestinationSettings] = Field(
        default={}, description="Settings of single destinations, by their names."
    )
    auth: AuthSettings | None = Field(default=None, description="Identities and permissions.")
    drain: int = Field(default=20_000, ge=0, le=HOUR, description="How long draining may take after SIGTERM, ms.")
    tracing: TracingSettings = Field(default=TracingSettings(), description="Tracing.")
    log: LogSettings = Field(default=LogSettings(), description="Log.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        *_positional: PydanticBaseSettingsSource,
        **_of_this_process: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read what the caller passes, then `SOURCES`; a test never sees the machine on which it runs."""
        return (init_settings, *SOURCES.get())

    @field_validator("drain", mode="before")
    @classmethod
    def _drain_is_a_number(cls, value: object) -> object:
        return values.refuse_switch(value, int)

    @model_validator(mode="before")
    @classmethod
    def _read_backend_file(cls, given: dict[str, Any]) -> dict[str, Any]:
        if (path := given.get("backend_file")) is None:
            return given
        if "backend" in given:
            raise ValueError("backend and backend_file are both set, perhaps in different places; keep one of them")
        return given | {"backend": values.read_secret(Path(str(path)), "backend_file", "the backend's URL")}

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.listen == self.management and self.listen.port:
            raise ValueError("listen and management name the same address; give one of them another port")
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in super().__repr_args__():
            yield name, values.redact(self.backend) if name == "backend" else value
