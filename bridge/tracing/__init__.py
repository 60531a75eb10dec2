"""Spans of messages, by OpenTelemetry, whose modules are imported only if `tracing.endpoint` is set."""

from typing import TYPE_CHECKING, Final

from bridge.settings import Settings, SettingsError

if TYPE_CHECKING:
    from bridge.tracing.spans import Tracing

_SYSTEMS: Final = {"kafka": "kafka", "amqp": "rabbitmq", "amqps": "rabbitmq"}
"""The `messaging.system` of the semantic conventions by the scheme of the backend."""


def create_tracing(settings: Settings) -> "Tracing | None":
    """Return what makes the spans, without connecting; None: tracing is off. Raises `SettingsError`."""
    tracing = settings.tracing
    if tracing.endpoint is None:
        return None
    try:
        from bridge.tracing.spans import Tracing  # noqa: PLC0415 - not needed without tracing
    except ModuleNotFoundError as error:
        raise SettingsError(f"tracing.endpoint needs {error.name}: pip install 'openmessaging-bridge[otel]'.") from None
    system = _SYSTEMS.get(settings.backend.partition(":")[0], "openmessaging")
    return Tracing.create(tracing.endpoint, tracing.protocol, tracing.ratio, system)
