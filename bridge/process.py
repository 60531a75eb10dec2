"""One bridge process: starts the backend, the engine and both ports, and stops them in order."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager

from starlette.types import ASGIApp

from bridge import logs
from bridge.callbacks.registry import CallbackRegistry, DeliveryOptions
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.http.callbacks import judge_registrations
from bridge.http.data_port import DataApp, routes
from bridge.http.management_port import management_app
from bridge.http.origin_policy import OriginPolicy
from bridge.http.webhook_handshake import WebhookHandshake
from bridge.identity.access import Access
from bridge.long_work import Slicer
from bridge.metrics import BridgeMetrics
from bridge.parts_from_settings import (
    admission_of,
    create_access,
    create_delivery_options,
    create_engine,
    destination_rules,
    limits_of,
    load_tls,
    memory_budget_of,
    server_of,
)
from bridge.server import ChosenServer, Listener, Tls, serve
from bridge.settings import Address, Settings, SettingsError, redact
from bridge.settings.values import is_loopback
from bridge.tracing import create_tracing

_log = logging.getLogger("bridge.process")


async def run(settings: Settings, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain. Returns the exit status.

    `announce` receives one line when both ports accept connections and, if the backend is not ready then, another one
    as soon as it is.

    Shutdown order: not ready, waiting pulls answered, no new connections, requests and callbacks in flight
    answered, leases released, backend flushed.

    Raises `SettingsError`, `CannotStart` or a `BridgeError` if the bridge cannot start and waiting does not help; also
    later, if an unreachable backend turns out to be unusable.
    """
    logs.configure(settings.log.level, settings.log.format)
    tls = load_tls(settings)
    server = server_of(settings, tls)
    rules = destination_rules(settings)
    clock = SystemClock()
    access = create_access(settings, clock, rules)
    _warn_without_identities(settings)
    tracing = create_tracing(settings)
    engine = create_engine(settings, clock, tracing)
    limits = limits_of(settings)
    origins = OriginPolicy((*settings.http.hosts, settings.listen.host), settings.http.origins, tls=tls is not None)
    slicer = Slicer()
    callbacks = _create_callbacks(engine, create_delivery_options(settings, clock, slicer, tracing), access)
    metrics = BridgeMetrics(engine, memory_budget_of(settings), callbacks.counters, access)
    table = routes(engine, callbacks, limits, settings.delivery.max_deliveries, rules, slicer=slicer, access=access)
    data = DataApp(table, origins, limits, metrics, WebhookHandshake(rules, settings.limits.quota), access)
    own_pages = OriginPolicy((*settings.http.hosts, settings.management.host), ())
    facts = {"backend": redact(settings.backend), "server": server.kind, "serverReason": server.reason}
    management = management_app(engine, metrics, facts, own_pages, access)

    def drain() -> Coroutine[object, object, None]:
        engine.drain()  # at once; then the POSTs in flight and the servers end at the same time
        return callbacks.drain(settings.drain / 1000)

    stop = _stop_on_signals()
    await engine.start()
    callbacks.start()
    if access is not None:
        access.start()
    lag = asyncio.create_task(metrics.measure_loop_lag())
    exporting = _export_metrics(settings, metrics)
    state = _BackendState(engine, stop, announce)

    def listening(ports: Mapping[str, int]) -> None:
        _freeze_start()
        state.watch(_addresses(settings, server, ports))

    try:
        await _serve(settings, server, tls, {"data": data, "management": management}, stop, drain, listening)
    finally:
        lag.cancel()
        state.cancel()
        if access is not None:
            await access.close()
        await callbacks.close()
        await engine.close()
        if exporting is not None:
            exporting.cancel()
            await asyncio.wait((exporting,))
        if tracing is not None:
            await tracing.close()
    if engine.start_error is not None:
        raise engine.start_error
    return 0


def _create_callbacks(engine: Engine, delivery: DeliveryOptions | None, access: Access | None) -> CallbackRegistry:
    if access is None:
        return CallbackRegistry(engine, delivery)
    callbacks = CallbackRegistry(engine, delivery, judge_registrations(access))
    access.each_second.append(callbacks.review)
    return callbacks


def _warn_without_identities(settings: Settings) -> None:
    """Say at each start that everyone who reaches a port may do everything."""
    if settings.auth is None:
        open_ports = [name for name in ("listen", "management") if not is_loopback(getattr(settings, name).host)]
        if open_ports:
            _log.warning(
                "everyone who can reach this port may use every destination: without the setting auth.rules, clients"
                " need no identity",
                extra={"ports": ", ".join(open_ports)},
            )


def _export_metrics(settings: Settings, metrics: BridgeMetrics) -> asyncio.Task[None] | None:
    """Start to send the metrics to the receiver of spans; None: they are not sent. `create_tracing` comes before."""
    tracing = settings.tracing
    if tracing.endpoint is None or tracing.metrics is None:
        return None
    from bridge.tracing.metrics_export import MetricsExport, metric_exporter  # noqa: PLC0415 - not needed without

    exporter = metric_exporter(tracing.endpoint, tracing.protocol)
    return asyncio.create_task(MetricsExport(exporter, metrics.families, tracing.metrics).run())


class _BackendState:
    """Announces that the bridge listens and when its backend is ready. Stops the bridge if the backend cannot start."""

    def __init__(self, engine: Engine, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
        self._engine = engine
        self._stop = stop
        self._announce = announce
        self._task: asyncio.Task[None] | None = None

    def watch(self, addresses: str) -> None:
        """Announce the state now, and its change later, with the addresses of both ports."""
        self._task = asyncio.create_task(self._watch(addresses))

    def cancel(self) -> None:
        """Announce nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self, addresses: str) -> None:
        engine = self._engine
        if engine.not_ready_reason is not None:
            reason = engine.not_ready_reason.rstrip(".")
            self._announce(f"oms-bridge is listening: {addresses}; backend not ready: {reason}")
        await engine.start_ended.wait()
        if engine.start_error is not None:
            self._stop.set()
        else:
            self._announce(f"oms-bridge is ready: {addresses}")


async def _serve(  # noqa: PLR0913, PLR0917 - what `run` has built
    settings: Settings,
    server: ChosenServer,
    tls: Tls | None,
    apps: Mapping[str, ASGIApp],
    stop: asyncio.Event,
    drain: Callable[[], Coroutine[object, object, None]],
    listening: Callable[[Mapping[str, int]], None],
) -> None:
    """Serve both ports until `stop` is set, then drain. `listening` is called with the ports once both are open."""
    ports: dict[str, int] = {}

    def opened(name: str, port: int) -> None:
        ports[name] = port
        if len(ports) == len(apps):
            listening(ports)

    # The servers count 32 bytes more per field and answer 431 without a body: up to twice the limit the bridge answers.
    data = Listener(*settings.listen, tls, 2 * settings.limits.headers, admission_of(settings))
    management = Listener(*settings.management)
    closing, closed = asyncio.Event(), asyncio.Event()

    async def serve_data() -> None:
        with _errors_of("listen"):
            await serve(
                server.kind,
                apps["data"],
                data,
                stop=closing,
                grace=settings.drain / 1000,
                ready=lambda port: opened("data", port),
            )

    async def serve_management() -> None:
        with _errors_of("management"):
            await serve(
                server.kind,
                apps["management"],
                management,
                stop=closed,
                grace=1,
                ready=lambda port: opened("management", port),
            )

    async with asyncio.TaskGroup() as servers:
        serving = servers.create_task(serve_data())
        servers.create_task(serve_management())
        await stop.wait()
        draining = servers.create_task(drain())
        closing.set()
        await asyncio.wait((serving, draining))
        closed.set()


@contextmanager
def _errors_of(setting: str) -> Iterator[None]:
    """Translate the errors of a server: an address that cannot be used, or Hypercorn in another version."""
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{setting}: {error.strerror or error}.") from None
    except RuntimeError as error:
        raise SettingsError(f"server: {error}.") from None


def _freeze_start() -> None:
    """Exclude what exists when the servers listen, above all modules, from every garbage collection.

    Of 400,000 produced and kept messages collections took 2.5 % instead of 4.3 % of the time, the longest 12 ms instead
    of 40 ms. Raising the thresholds as well saved no time and made the longest one 63 ms.
    """
    gc.collect()
    gc.freeze()


def _stop_on_signals() -> asyncio.Event:
    """Return an event that is set by the first signal; a second one, of either kind, ends the process at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    return stop


def _addresses(settings: Settings, server: ChosenServer, ports: Mapping[str, int]) -> str:
    """Return what the bridge announces. `ports` are the actual ones of `data` and `management`."""
    data = Address(settings.listen.host, ports["data"])
    management = Address(settings.management.host, ports["management"])
    scheme = "https" if settings.tls else "http"
    return (
        f"messages on {scheme}://{data}, management on http://{management},"
        f" backend {redact(settings.backend)}, server {server}"
    )
