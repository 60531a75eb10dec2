"""Builds the parts of a bridge from its settings, without connecting: adapter, engine, limits, rules, callbacks."""

import logging
import resource
import socket
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from adapters.base import Adapter
from bridge.callbacks.registry import DeliveryOptions
from bridge.engine.client_limits import MemoryBudget, client_at
from bridge.engine.clock import Clock, SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.errors import needs_extra
from bridge.http.incoming_webhook_rules import DestinationRules, Rules, Signing
from bridge.http.request_and_reply import Limits
from bridge.identity.access import Access, AccessFiles
from bridge.identity.key_sets import FetchedKeys, KeyFile, KeySource, fetch_from
from bridge.identity.principals import FileError, Revoked, StaticTokens
from bridge.identity.rules import Rules as AccessRules
from bridge.identity.watched_files import WatchedFile
from bridge.long_work import Slicer
from bridge.server import ChosenServer, Tls, choose_server, tls_context
from bridge.server.connection_limits import Admission
from bridge.settings import Settings, SettingsError, read_secrets
from bridge.settings.auth import AuthSettings
from bridge.tracing import create_tracing

if TYPE_CHECKING:
    from bridge.identity.jwt_tokens import Issuer, Keys
    from bridge.tracing.spans import Tracing

T = TypeVar("T")

_log = logging.getLogger("bridge.process")

RESERVED_FILES: Final = 64
"""File descriptors that clients of the data port leave free: for the management port, the backend and callbacks."""
DISCONNECT_REPORTED: Final = 10
"""Milliseconds between the opening of a group and its first message to a client. A server reports a disconnect some
tenths of a millisecond late, on a busy machine some milliseconds; a message taken meanwhile would be lost, or wait for
the end of its lease."""
LARGEST_REPLY: Final = 8
"""Times `limits.body` that one reply can take: control characters are six times as long in JSON."""


def create_adapter(settings: Settings) -> Adapter:
    """Create the adapter for the scheme of the backend's URL, without connecting. Raises `SettingsError`."""
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


def create_delivery_options(
    settings: Settings, clock: Clock, slicer: Slicer, tracing: "Tracing | None" = None
) -> DeliveryOptions | None:
    """Return the sender of callbacks and its limits; None: no targets are set. Raises `SettingsError`."""
    callbacks = settings.callbacks
    if not callbacks.targets:
        return None
    from bridge.callbacks.callback_sender import SenderOptions, build_delivery_options  # noqa: PLC0415 - not needed without callbacks

    options = SenderOptions(
        targets=callbacks.targets,
        networks=callbacks.networks,
        secrets=callbacks.secrets,
        ca=callbacks.ca,
        in_flight=callbacks.in_flight,
        timeout=callbacks.timeout,
        lease=settings.delivery.lease,
        body_max=settings.limits.body,
    )
    try:
        delivery = build_delivery_options(options, clock, slicer)
    except OSError:  # ssl.SSLError is one
        raise SettingsError("callbacks.ca: the file holds no certificates in PEM form.") from None
    if tracing is None:
        return delivery
    from bridge.tracing.engine import trace_posts  # noqa: PLC0415 - not needed without tracing

    return delivery._replace(post=trace_posts(delivery.post, tracing))


def load_tls(settings: Settings) -> Tls | None:
    """Return the TLS files of the data port; None: cleartext. Raises `SettingsError` if they cannot be used."""
    if settings.tls is None:
        return None
    tls = Tls(settings.tls.certificate, settings.tls.key, settings.tls.client_ca)
    try:
        tls_context(tls)
    except OSError as error:
        raise SettingsError(f"tls: {error}.") from None
    return tls


def server_of(settings: Settings, tls: Tls | None) -> ChosenServer:
    """Return the server of both ports. Raises `SettingsError` if the one that the settings name cannot serve."""
    try:
        return choose_server(settings.server, tls)
    except RuntimeError as error:
        raise SettingsError(f"server: {error}.") from None


def destination_rules(settings: Settings) -> Rules:
    """Return what the settings say of destinations. Raises `SettingsError` for a name or a secret that cannot be."""
    rules = {}
    for name, destination in settings.destinations.items():
        verify = destination.verify
        try:
            signing = None
            if verify is not None:
                signing = Signing(verify.scheme, read_secrets(verify.secret_file), verify.tolerance, verify.header)
            rules[name] = DestinationRules.create(name, destination.properties_from_headers, signing)
        except ValueError as error:
            raise SettingsError(f"destinations.{name}: {error}.") from None
    return rules


def create_access(settings: Settings, clock: Clock, rules: Rules) -> Access | None:
    """Return who clients are and what they may do; None: no identities. `rules`: of destinations with settings.

    Raises `SettingsError` for a file that cannot be used, `CannotStart` without the extra that JWTs need.
    """
    if (auth := settings.auth) is None:
        return None
    try:
        files = AccessFiles(
            _yaml_file(auth.rules, "auth.rules", _read_rules),
            None if auth.tokens is None else _yaml_file(auth.tokens, "auth.tokens", StaticTokens.parse),
            None if auth.revoked is None else _yaml_file(auth.revoked, "auth.revoked", Revoked.parse),
        )
        issuers, of_keys = _issuers(auth, clock)
    except FileError as error:
        raise SettingsError(f"{error}.") from None
    return Access(
        files._replace(keys=of_keys),
        issuers,
        clock,
        signed=[name for name, rule in rules.items() if rule.verifier is not None],
        resource=auth.resource,
        scheme="http" if settings.tls is None else "https",
        producer_property=auth.producer_property,
    )


def _read_rules(content: object) -> AccessRules:
    rules = AccessRules.parse(content)
    for warning in rules.warnings():
        _log.warning("a rule has no effect", extra={"rule": warning})
    return rules


def _yaml_file(path: Path, setting: str, parse: Callable[[object], T]) -> WatchedFile[T]:
    from bridge.identity.yaml_content import read_yaml  # noqa: PLC0415 - 1 MiB of memory that only files need

    return WatchedFile(setting, path, lambda raw: parse(read_yaml(raw)))


def _issuers(
    auth: AuthSettings, clock: Clock
) -> tuple[dict[str, tuple["Issuer", KeySource]], list[WatchedFile["Keys"]]]:
    """Return the issuers by their claim, and the files of their keys. Raises `FileError`, `CannotStart`."""
    if not auth.issuers:
        return {}, []
    try:
        from bridge.identity.jwt_tokens import ALGORITHMS, Issuer, Keys  # noqa: PLC0415 - PyJWT is an extra
    except ModuleNotFoundError as error:
        raise needs_extra("auth.issuers", error.name, "jwt") from None
    issuers: dict[str, tuple[Issuer, KeySource]] = {}
    files: list[WatchedFile[Keys]] = []
    for name, each in auth.issuers.items():
        setting = f"auth.issuers.{name}.keys"
        if "://" in each.keys:
            try:
                fetch = fetch_from(each.keys, None if each.ca is None else str(each.ca))
            except ValueError as error:
                raise FileError(f"auth.issuers.{name}.ca: {error}") from None
            source: KeySource = FetchedKeys(name, fetch, Keys.parse, clock)
        else:
            files.append(WatchedFile(setting, Path(each.keys), Keys.parse))
            source = KeyFile(files[-1])
        claims = (each.principal, each.groups)
        issuer = Issuer(name, each.issuer, each.audience, frozenset(each.algorithms or ALGORITHMS), *claims)
        issuers[each.issuer] = issuer, source
    return issuers, files


def create_engine(settings: Settings, clock: Clock, tracing: "Tracing | None") -> Engine:
    """Create the engine and its adapter, without connecting. Raises `SettingsError`."""
    adapter, options = create_adapter(settings), engine_options_of(settings)
    if tracing is None:
        return Engine(adapter, clock, options)
    from bridge.tracing.engine import EngineSpans  # noqa: PLC0415 - as above

    return Engine(adapter, clock, options, EngineSpans(tracing))


def engine_options_of(settings: Settings) -> EngineOptions:
    """Return the settings that the engine uses."""
    return EngineOptions(
        store_host=f"{socket.gethostname()}:{settings.listen.port}" if settings.listen.port else socket.gethostname(),
        strict=settings.binding.strict,
        in_flight=settings.limits.in_flight,
        in_flight_bytes=settings.limits.in_flight_bytes,
        quota=settings.limits.quota,
        produce_timeout=settings.timeouts.produce,
        max_deliveries=settings.delivery.max_deliveries,
        prefetch=settings.limits.prefetch,
        prefetch_bytes=settings.limits.prefetch_bytes,
        waiting_pulls=settings.limits.waiting_pulls,
        destinations=settings.limits.destinations,
        groups=settings.limits.groups,
        delayed=settings.limits.delayed,
        delayed_bytes=settings.limits.delayed_bytes,
        transactions=settings.limits.transactions,
        transaction_messages=settings.limits.transaction_messages,
        transaction_bytes=settings.limits.transaction_bytes,
        prepared_bytes=settings.limits.prepared_bytes,
        client_share=settings.limits.client_share,
        dedup_window=settings.dedup.window,
        dedup_bytes=settings.dedup.bytes,
        metric_labels=settings.limits.metric_labels,
        auto_create=settings.limits.auto_create,
        group_idle=settings.delivery.group_idle,
        disconnect_reported=DISCONNECT_REPORTED,
        latest=settings.delivery.new_group == "latest",
    )


def limits_of(settings: Settings) -> Limits:
    """Return the settings that the request handlers use."""
    return Limits(
        body=settings.limits.body,
        headers=settings.limits.headers,
        batch=settings.limits.batch,
        body_timeout=settings.timeouts.body,
        lease=settings.delivery.lease,
        max_lease=settings.delivery.max_lease,
        stall=settings.timeouts.stall,
    )


def memory_budget_of(settings: Settings) -> MemoryBudget:
    """Return the budget of bytes for clients."""
    limits = settings.limits
    return MemoryBudget(limits.memory, limits.client_share, LARGEST_REPLY * limits.body)


def admission_of(settings: Settings) -> Admission:
    """Return the limit of connections of the data port, which leaves file descriptors for the rest of the process."""
    limit, files = settings.limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY:
        left = max(1, files - len(list(Path("/dev/fd").iterdir())) - RESERVED_FILES)
        if left < limit:
            _log.warning(
                "limits.connections is lowered: the process may not open enough files",
                extra={"connections": left, "files": files},
            )
            limit = left
    return Admission(limit, settings.limits.client_share, client_at)


async def check_files(settings: Settings) -> None:
    """Open the files of destinations and callbacks as `run` does. Raises `SettingsError` for an unusable one."""
    create_access(settings, SystemClock(), destination_rules(settings))
    callbacks = create_delivery_options(settings, SystemClock(), Slicer())
    if callbacks is not None:
        await callbacks.close()
    tracing = create_tracing(settings)
    if tracing is not None:
        await tracing.close()
