"""One bridge process: backend, engine, both ports, signals, and the order of its end."""

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Coroutine
from importlib.metadata import entry_points

from starlette.types import ASGIApp

from adapters.base import Adapter
from bridge import logs
from bridge.callbacks.registry import Callbacks
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.policy import Policy
from bridge.http.app import DataApp, routes
from bridge.http.guard import Guard
from bridge.http.limits import Limits
from bridge.http.management import management_app
from bridge.server import Listener, Tls, serve
from bridge.settings import Address, Settings, SettingsError, redact
from bridge.telemetry import Telemetry


def open_backend(settings: Settings) -> Adapter:
    """Build the adapter that the backend's scheme names; nothing is connected yet. Raises `SettingsError`."""
    scheme = settings.backend.partition(":")[0]
    known = {point.name: point for point in entry_points(group="openmessaging_bridge.adapters")}
    if scheme not in known:
        raise SettingsError(
            f"backend: no adapter for {scheme}:// is installed; {', '.join(sorted(known))} can be used."
        )
    try:
        adapter: Adapter = known[scheme].load()(settings.backend)
    except ValueError as error:
        raise SettingsError(f"backend: {error}") from None
    return adapter


def open_callbacks(settings: Settings, engine: Engine) -> Callbacks:
    """Build callback push, off unless targets are named. Raises `SettingsError`."""
    chosen = settings.callbacks
    if not chosen.targets:
        return Callbacks(engine, None)
    from bridge.callbacks.assembly import Allowed, assemble  # noqa: PLC0415 - it brings aiohttp: 10 MiB

    allowed = Allowed(
        targets=chosen.targets,
        networks=chosen.networks,
        secrets=chosen.secrets,
        ca=chosen.ca,
        in_flight=chosen.in_flight,
        timeout=chosen.timeout,
        lease=settings.delivery.lease,
        largest=settings.limits.body,
    )
    try:
        return Callbacks(engine, assemble(allowed, engine.clock))
    except OSError:  # ssl.SSLError is one
        raise SettingsError("callbacks.ca: the file holds no certificates in PEM form.") from None


async def run(settings: Settings, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain. Returns the exit status.

    The order of the end: not ready, waiting pulls answered, no new connections, requests and callbacks in flight
    answered, leases released, backend flushed.
    """
    logs.configure(settings.log.level)
    engine = Engine(open_backend(settings), SystemClock(), policy_of(settings))
    telemetry = Telemetry(engine)
    limits = limits_of(settings)
    guard = Guard((*settings.http.hosts, settings.listen.host), settings.http.origins)
    callbacks = open_callbacks(settings, engine)
    data = DataApp(routes(engine, callbacks, limits, settings.delivery.max_deliveries), guard, limits, telemetry)
    management = management_app(engine, telemetry, redact(settings.backend))

    def drain() -> Coroutine[object, object, None]:
        engine.drain()  # at once; the POSTs in flight and the servers then end side by side
        return callbacks.drain(settings.drain / 1000)

    stop = asyncio.Event()
    _stop_on_signals(stop)
    _spare_the_collector()
    await engine.start()
    callbacks.start()
    lag = asyncio.create_task(telemetry.watch_loop())
    try:
        await _serve(settings, {"data": data, "management": management}, stop, drain, announce)
    finally:
        lag.cancel()
        await callbacks.close()
        await engine.close()
    return 0


def policy_of(settings: Settings) -> Policy:
    """Return the engine's share of the settings."""
    return Policy(
        store_host=f"{socket.gethostname()}:{settings.listen.port}" if settings.listen.port else socket.gethostname(),
        strict=settings.binding.strict,
        in_flight=settings.limits.in_flight,
        in_flight_bytes=settings.limits.in_flight_bytes,
        quota=settings.limits.quota,
        produce_timeout=settings.timeouts.produce,
        max_deliveries=settings.delivery.max_deliveries,
        window=settings.limits.window,
        window_bytes=settings.limits.window_bytes,
        waiting_pulls=settings.limits.waiting_pulls,
        group_idle=settings.delivery.group_idle,
        latest=settings.delivery.new_group == "latest",
    )


def limits_of(settings: Settings) -> Limits:
    """Return the doors' share of the settings."""
    return Limits(
        body=settings.limits.body,
        headers=settings.limits.headers,
        batch=settings.limits.batch,
        body_timeout=settings.timeouts.body,
        lease=settings.delivery.lease,
        max_lease=settings.delivery.max_lease,
        stall=settings.timeouts.stall,
    )


async def _serve(
    settings: Settings,
    apps: dict[str, ASGIApp],
    stop: asyncio.Event,
    drain: Callable[[], Coroutine[object, object, None]],
    announce: Callable[[str], None],
) -> None:
    ports: dict[str, int] = {}

    def ready(name: str, port: int) -> None:
        ports[name] = port
        if len(ports) == len(apps):
            announce(_ready_line(settings, ports))

    tls = Tls(settings.tls.certificate, settings.tls.key, settings.tls.client_ca) if settings.tls else None
    # The servers count 32 bytes more per field and answer 431 without a body: up to twice the limit the door answers.
    data = Listener(*settings.listen, tls, 2 * settings.limits.headers)
    management = Listener(*settings.management)
    closing, closed = asyncio.Event(), asyncio.Event()
    try:
        async with asyncio.TaskGroup() as servers:
            serving = servers.create_task(
                serve(
                    settings.server,
                    apps["data"],
                    data,
                    stop=closing,
                    grace=settings.drain / 1000,
                    ready=lambda port: ready("data", port),
                )
            )
            servers.create_task(
                serve(
                    "hypercorn",
                    apps["management"],
                    management,
                    stop=closed,
                    grace=1,
                    ready=lambda port: ready("management", port),
                )
            )
            await stop.wait()
            draining = servers.create_task(drain())
            closing.set()
            await asyncio.wait((serving, draining))
            closed.set()
    except* (OSError, RuntimeError) as group:
        raise SettingsError(f"listen: {group.exceptions[0]}") from None


def _spare_the_collector() -> None:
    """Leave what the start made, modules above all, out of every garbage collection.

    Of 400,000 produced and kept messages collections took 2.5 % instead of 4.3 % of the time, the longest 12 ms instead
    of 40 ms. Raising the thresholds as well saved no time and made the longest one 63 ms.
    """
    gc.collect()
    gc.freeze()


def _stop_on_signals(stop: asyncio.Event) -> None:
    """The first signal drains; a second one, of either kind, is the operating system's business."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal)


def _ready_line(settings: Settings, ports: dict[str, int]) -> str:
    data = Address(settings.listen.host, ports["data"])
    management = Address(settings.management.host, ports["management"])
    scheme = "https" if settings.tls else "http"
    return (
        f"oms-bridge is ready: messages on {scheme}://{data}, management on http://{management},"
        f" backend {redact(settings.backend)}, server {settings.server}"
    )
