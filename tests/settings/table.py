"""Every setting: a value that is not the default, and what a client sees of a real bridge then and otherwise."""

from typing import Final

from tests.settings import observe_callbacks, observe_delivery, observe_limits, observe_ports
from tests.settings.comparison import BOTH, Comparison, NotObserved, Row

__all__ = ["COMPARISONS", "TESTED_SEPARATELY", "Comparison"]

_LATE_BODY: Final = "request-timeout: The body did not arrive within 500 ms."
_LATE_BACKEND: Final = "outcome-unknown: The backend has not answered for 500 ms."

_SMALL: Final = Comparison(
    "smaller limits",
    servers=BOTH,
    rows=(
        Row("backend", "memory://?partitions=3", observe_ports.partitions, 3, 8),
        Row("listen", "127.0.0.2:0", observe_ports.data_host, "127.0.0.2", "127.0.0.1"),
        Row("management", "127.0.0.3:0", observe_ports.management_host, "127.0.0.3", "127.0.0.1"),
        Row("http.hosts", "bridge.shop.svc", observe_ports.named_host, 200, "forbidden"),
        Row("http.origins", "https://shop.example", observe_ports.foreign_origin, "https://shop.example", "forbidden"),
        Row("limits.body", "100000", observe_limits.largest_body, "body-too-large", 200),
        Row("limits.headers", "2048", observe_limits.headers_of_3000, "headers-too-large", 200),
        Row("limits.headers", "2048", observe_limits.headers_of_25000, "refused by the server", 200),
        Row("limits.batch", "7", observe_limits.batch_of_8, "body-too-large", 200),
        Row("limits.memory", "1MiB", observe_limits.tenth_body, "limit-reached", 200),
        Row("timeouts.body", "500", observe_limits.body_timeout, _LATE_BODY, NotObserved.LONG),
        Row("timeouts.stall", "600", observe_limits.stall, "reset after 600 ms", NotObserved.LONG),
        Row("delivery.max_deliveries", "2", observe_delivery.deliveries, "dead letter after 2", "delivery 3"),
    ),
)
_LARGE: Final = Comparison(
    "larger limits",
    servers=BOTH,
    rows=(
        Row("limits.body", "8MiB", observe_limits.larger_body, "whole", "body-too-large"),
        Row("limits.headers", "128KiB", observe_limits.headers_of_60000, "whole", "headers-too-large"),
        Row("limits.batch", "1500", observe_limits.batch_of_1200, 200, "body-too-large"),
        Row("dedup.window", "400", observe_limits.retry_after_a_pause, "stored again", "duplicate"),
        Row("dedup.bytes", "1MiB", observe_limits.retry_after_many, "stored again", "duplicate"),
        Row("limits.body", "8MiB", observe_limits.announced_body, 8 << 20, 4 << 20),
        Row("delivery.max_deliveries", "17", observe_delivery.announced_deliveries, 17, 16),
        Row("delivery.max_lease", "3600000", observe_delivery.announced_lease, 3_600_000, 900_000),
        Row("log.format", "text", observe_delivery.log_form, "text", "json"),
    ),
)
_GROUPS: Final = Comparison(
    "groups",
    backend="memory://?journal={directory}/journal",
    rows=(
        Row("binding.strict", "true", observe_limits.strictness, "header-missing", 200),
        Row("limits.metric_labels", "0", observe_limits.label_of_destination, "other", "its own"),
        Row("limits.quota", "20", observe_limits.quota, [200, "quota-exceeded"], [200]),
        Row("limits.waiting_pulls", "2", observe_limits.waiting_pulls, "too-many-in-flight", 204),
        Row("delivery.lease", "400", observe_delivery.lease, "400 ms, then delivery 2", "30000 ms"),
        Row("delivery.max_lease", "5000", observe_delivery.longest_lease, "header-invalid", 204),
        Row("delivery.new_group", "latest", observe_delivery.new_group, 204, 200),
        Row("delivery.group_idle", "500", observe_delivery.group_idle, "closed", "open", observe_delivery.group_kept),
        Row("limits.delayed_bytes", "900", observe_limits.delayed_bytes_of_one_client, 6, 10),
        Row("limits.transaction_messages", "4", observe_limits.messages_of_a_transaction, 4, 10),
        Row("limits.transaction_bytes", "4000", observe_limits.bytes_of_a_transaction, 3, 10),
        # last: the client has its share of destinations then
        Row("limits.client_share", "100", observe_limits.has_all_destinations, True, False),
    ),
)
_SHARES: Final = Comparison(
    "shares",
    needs=lambda _: {"OMS_DRAIN": "20001"},  # separate bridges: the rows use up what one client may have
    rows=(
        Row("limits.groups", "8", observe_limits.groups_of_one_client, 4, 10),
        Row("limits.transactions", "6", observe_limits.transactions_of_one_client, 3, 10),
        Row("limits.prepared_bytes", "8000", observe_limits.prepared_bytes_of_one_client, 3, 10),
        Row("limits.delayed", "6", observe_limits.delayed_of_one_client, 3, 10),
        Row("limits.destinations", "41", observe_limits.destinations_of_one_client, 19, 499),
    ),
)
_CONNECTIONS: Final = Comparison(
    "connections",
    servers=BOTH,
    rows=(Row("limits.connections", "8", observe_limits.open_connections, 4, 10),),
)
_EXISTING: Final = Comparison(
    "existing destinations",
    rows=(Row("limits.auto_create", "false", observe_limits.unknown_destination, "destination-unknown", 200),),
)
_PREFETCH: Final = Comparison(
    "prefetch and log",
    rows=(
        Row("limits.prefetch", "7", observe_limits.prefetch, 7, 12),
        Row("limits.prefetch_bytes", "4096", observe_limits.prefetch_bytes, 4, 12),
        Row("log.level", "error", observe_delivery.dead_letter_logged, False, True),
    ),
)
_PUBLISHING: Final = Comparison(
    "publishing",
    backend="held://",
    needs=lambda r: {**r.held, "OMS_LIMITS__BODY": "4096"},
    rows=(
        Row("limits.in_flight", "3", observe_limits.in_flight, 1, 0),
        Row("limits.in_flight_bytes", "4096", observe_limits.in_flight_bytes, 1, 0),
        Row(
            "timeouts.produce",
            "500",
            observe_limits.produce_timeout,
            _LATE_BACKEND,
            200,
            observe_limits.produce_in_time,
        ),
    ),
)
_CALLBACKS: Final = Comparison(
    "callbacks",
    needs=lambda _: {"OMS_CALLBACKS__NETWORKS": "127.0.0.1/32"},
    rows=(
        Row(
            "callbacks.targets",
            lambda r: r.endpoint.url(""),
            observe_callbacks.target,
            201,
            "callback-refused",
        ),
        Row(
            "callbacks.secrets",
            observe_callbacks.SECRET,
            observe_callbacks.signature(observe_callbacks.SECRET),
            "signed",
            NotObserved.NEEDED,
        ),
        Row("callbacks.in_flight", "3", observe_callbacks.at_once, 3, NotObserved.NEEDED),
    ),
)
_SIGNED: Final = Comparison(
    "callbacks with files",
    needs=lambda r: {
        "OMS_CALLBACKS__TARGETS": f"{r.endpoint.url('')},https://localhost:{r.secure.port}",
        "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32,::1/128",
    },
    rows=(
        Row(
            "callbacks.secrets_file",
            lambda r: r.file("secrets", observe_callbacks.FROM_FILE),
            observe_callbacks.signature(observe_callbacks.FROM_FILE),
            "signed",
            NotObserved.NEEDED,
        ),
        Row(
            "callbacks.ca",
            lambda r: str(r.ca),
            observe_callbacks.authority,
            "delivered",
            NotObserved.NEEDED,
        ),
    ),
)
_REACHED: Final = Comparison(
    "callbacks with targets",
    needs=lambda r: {
        "OMS_CALLBACKS__TARGETS": r.endpoint.url(""),
        "OMS_CALLBACKS__SECRETS": observe_callbacks.SECRET,
    },
    rows=(
        Row("callbacks.networks", "127.0.0.1/32", observe_callbacks.network, "delivered", "refused"),
        Row("callbacks.timeout", "500", observe_callbacks.timeout, "within 0.5 s", NotObserved.LONG),
    ),
)
_DRAIN: Final = Comparison(
    "drain",
    servers=BOTH,
    needs=lambda _: {"OMS_TIMEOUTS__BODY": "15000"},
    ends_bridges=True,
    rows=(
        Row(
            "drain",
            "200",
            observe_delivery.drain_cuts,
            (0, "504"),
            (0, "200"),
            observe_delivery.drain_waits,
        ),
    ),
)
_TLS: Final = Comparison(
    "TLS",
    servers=BOTH,
    rows=(
        Row(
            "tls.certificate",
            lambda r: str(r.certificate),
            observe_ports.certificate,
            "the file's",
            "cleartext",
        ),
        Row("tls.key", lambda r: str(r.key), observe_ports.key, 200, "cleartext"),
        Row(
            "tls.client_ca",
            lambda r: str(r.ca),
            observe_ports.client_certificate,
            ["refused", 200],
            [200],
        ),
    ),
)
_SERVER: Final = Comparison("server", rows=(Row("server", "granian", observe_ports.server, "granian", None),))

COMPARISONS: Final = (
    _SMALL,
    _LARGE,
    _GROUPS,
    _SHARES,
    _CONNECTIONS,
    _EXISTING,
    _PREFETCH,
    _PUBLISHING,
    _CALLBACKS,
    _SIGNED,
    _REACHED,
    _DRAIN,
    _TLS,
    _SERVER,
)
TESTED_SEPARATELY: Final = frozenset(
    {
        "backend_file",
        *(f"destinations.NAME.verify.{name}" for name in ("scheme", "secret_file", "tolerance", "header")),
        "destinations.NAME.properties_from_headers",
        *(f"auth.{name}" for name in ("rules", "tokens", "revoked", "resource", "producer_property")),
        *(
            f"auth.issuers.NAME.{name}"
            for name in ("issuer", "audience", "keys", "ca", "algorithms", "principal", "groups")
        ),
        *("tracing.endpoint", "tracing.protocol", "tracing.ratio", "tracing.metrics"),
    }
)
"""Settings whose bridge needs another environment: see tests/http/test_webhooks.py, tests/http/test_identity.py and
tests/tracing."""
