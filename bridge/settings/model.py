"""Every setting: its name, type, range, default and the one line that docs/configuration.md shows for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bridge.settings import values
from bridge.settings.values import Address

PREFIX: Final = "OMS_"
NESTED: Final = "__"

_GIB: Final = 1 << 30
_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR

READ_BYTES: Final = BeforeValidator(TypeAdapter(ByteSize).validate_python)
Bytes = Annotated[int, READ_BYTES]
Listen = Annotated[Address, BeforeValidator(values.read_address)]
Readable = Annotated[Path, AfterValidator(values.check_readable)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(values.check_host)], ...], BeforeValidator(values.split_commas)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(values.check_origin)], ...], BeforeValidator(values.split_commas)
]
Texts = Annotated[tuple[str, ...], BeforeValidator(values.split_commas)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Tls(_Section):
    """TLS on the data port; without it the data port speaks cleartext."""

    certificate: Readable = Field(description="PEM file with the server's certificate and its chain.")
    key: Readable = Field(description="PEM file with the certificate's private key.")
    client_ca: Readable | None = Field(
        default=None, description="PEM file with the authorities whose client certificates are demanded."
    )


class Binding(_Section):
    """How literally the OpenMessaging HTTP binding is taken."""

    strict: bool = Field(default=False, description="Demand every header that the binding marks Required.")


class Limits(_Section):
    """What one client, and all of them together, may ask of the bridge."""

    body: Bytes = Field(
        default=4 << 20, ge=1, le=_GIB, description="Largest body, also after inflating; beyond it 413."
    )
    headers: Bytes = Field(
        default=32 << 10, ge=1024, le=1 << 20, description="Largest header block of a request or a part; beyond it 431."
    )
    batch: int = Field(default=1000, ge=1, le=100_000, description="Most messages in one batch; beyond it 413.")
    in_flight: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Most messages being published at once; beyond it 503."
    )
    in_flight_bytes: Bytes = Field(
        default=64 << 20, ge=1, le=64 * _GIB, description="Most bytes of bodies being published at once; beyond it 503."
    )
    quota: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Messages per second into one destination; beyond it 429. Unset: any.",
    )
    window: int = Field(default=1024, ge=1, le=100_000, description="Most messages fetched ahead for one group.")
    window_bytes: Bytes = Field(
        default=64 << 20, ge=1, le=64 * _GIB, description="Most bytes of bodies fetched ahead for one group."
    )
    waiting_pulls: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Most pulls and streams waiting at once; beyond it 503."
    )

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.in_flight_bytes < self.body:
            raise ValueError("limits.in_flight_bytes must not be below limits.body, or a full body never gets in")
        return self


class Timeouts(_Section):
    """How long the bridge waits for others, in milliseconds."""

    body: int = Field(
        default=30_000, ge=1, le=_HOUR, description="Longest a client may take to send a body, ms; then 408."
    )
    produce: int = Field(
        default=30_000, ge=1, le=_HOUR, description="Longest the backend may take to confirm a message, ms; then 504."
    )
    stall: int = Field(
        default=300_000,
        ge=1,
        le=_DAY,
        description="Longest the reader of a push stream may take nothing of what is ready, ms; then it ends.",
    )


class Delivery(_Section):
    """Leases and redelivery."""

    max_deliveries: int = Field(
        default=16,
        ge=1,
        le=1_000_000,
        description="Deliveries of one message to a group before it goes to the dead letters.",
    )
    lease: int = Field(default=30_000, ge=1, le=_DAY, description="Lease of a pull that names none, ms.")
    max_lease: int = Field(default=900_000, ge=1, le=_DAY, description="Longest lease a client may ask for, ms.")
    new_group: Literal["earliest", "latest"] = Field(
        default="earliest", description="Where a new group starts: at the oldest message kept, or after the newest."
    )
    group_idle: int = Field(
        default=300_000,
        ge=1,
        le=_DAY,
        description="How long the bridge keeps an unused group open, ms; its state stays.",
    )

    @model_validator(mode="after")
    def _lease_in_range(self) -> Self:
        if self.lease > self.max_lease:
            raise ValueError("delivery.lease must not be above delivery.max_lease")
        return self


class Http(_Section):
    """Which hosts and origins may speak to the data port: the guard against pages that rebind DNS to loopback."""

    hosts: Hosts = Field(
        default=(), description="Host names accepted beside loopback and the listen address; `*` accepts any."
    )
    origins: Origins = Field(default=(), description="Origins of web pages that may send cross-origin requests.")


class Callbacks(_Section):
    """Callback push. Off until `targets` names who may be called."""

    targets: Annotated[Texts, AfterValidator(values.check_targets)] = Field(
        default=(),
        description="Endpoints that callbacks may be sent to, `scheme://host[:port]`; `*.` before a name stands for"
        " whatever is below it. Unset: callbacks are off.",
    )
    networks: Annotated[Texts, AfterValidator(values.check_networks)] = Field(
        default=(),
        description="Private networks, as CIDR, in which endpoints may be; every other one is refused.",
    )
    secrets: Annotated[Texts, AfterValidator(values.check_secrets)] = Field(
        default=(),
        repr=False,
        description="Secrets to sign callbacks with, `whsec_` and base64 of 24 to 64 bytes, the newest first.",
    )
    secrets_file: Readable | None = Field(
        default=None, description="File that holds the secrets, in one line, such as a mounted secret; instead of them."
    )
    ca: Readable | None = Field(
        default=None, description="PEM file with the authorities that endpoints' certificates must come from."
    )
    in_flight: int = Field(default=64, ge=1, le=64, description="Most POSTs in flight for one registration.")
    timeout: int = Field(default=15_000, ge=1, le=_HOUR, description="Longest a POST and its answer may take, ms.")

    @model_validator(mode="before")
    @classmethod
    def _read_secrets_file(cls, given: Any) -> Any:  # noqa: ANN401 - what is no mapping is reported by the model
        if not isinstance(given, dict) or (path := given.get("secrets_file")) is None:
            return given
        if "secrets" in given:
            raise ValueError("callbacks.secrets and callbacks.secrets_file are both set; keep one of them")
        try:
            values.check_readable(Path(str(path)))
        except ValueError:
            return given  # the setting's own check says it
        return given | {"secrets": values.read_secret(Path(str(path)), "callbacks.secrets_file", "the secrets")}

    @model_validator(mode="after")
    def _signed(self) -> Self:
        if self.targets and not self.secrets:
            raise ValueError("callbacks.targets needs callbacks.secrets or callbacks.secrets_file to sign with")
        return self


class Log(_Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged."
    )


class Settings(BaseSettings):
    """All settings. Built directly it reads neither environment nor files; `load` does."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_prefix=PREFIX,
        env_nested_delimiter=NESTED,
        enable_decoding=False,  # lists are comma separated; JSON inside a variable would be a second way to say it
    )

    backend: Annotated[str, AfterValidator(values.check_backend)] = Field(
        default="memory://", description="URL of the backend; may hold a password, which is never shown."
    )
    backend_file: Path | None = Field(
        default=None, description="File that holds the backend's URL, such as a mounted secret; instead of `backend`."
    )
    listen: Listen = Field(
        default=Address("127.0.0.1", 8080), description="Data port, `host:port`; port 0 takes a free one."
    )
    management: Listen = Field(
        default=Address("127.0.0.1", 9090), description="Management port (probes, metrics), `host:port`."
    )
    server: Literal["hypercorn", "granian"] = Field(
        default="hypercorn", description="HTTP server; granian needs `fast`."
    )
    tls: Tls | None = Field(default=None, description="TLS on the data port.")
    binding: Binding = Field(default=Binding(), description="How literally the binding is taken.")
    limits: Limits = Field(default=Limits(), description="Limits.")
    timeouts: Timeouts = Field(default=Timeouts(), description="Timeouts.")
    delivery: Delivery = Field(default=Delivery(), description="Leases and redelivery.")
    http: Http = Field(default=Http(), description="Hosts and origins.")
    callbacks: Callbacks = Field(default=Callbacks(), description="Callback push.")
    drain: int = Field(default=20_000, ge=0, le=_HOUR, description="Longest the drain may take after SIGTERM, ms.")
    log: Log = Field(default=Log(), description="Log.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - these four are the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read what the caller passes and nothing else, so that a test never sees the machine it runs on."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _read_backend_file(cls, given: dict[str, Any]) -> dict[str, Any]:
        if (path := given.get("backend_file")) is None:
            return given
        if "backend" in given:
            raise ValueError("backend and backend_file are both set, be it in different places; keep one of them")
        return given | {"backend": values.read_secret(Path(str(path)), "backend_file", "the backend's URL")}

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.listen == self.management and self.listen.port:
            raise ValueError("listen and management name the same address; give one of them another port")
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name, value in super().__repr_args__():
            yield name, values.redact(self.backend) if name == "backend" else value
