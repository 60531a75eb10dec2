"""What the URL of a request says: values in its path, parameters, which are also headers, and fields of a message."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from bridge.engine.destination_names import SubscriptionKey
from bridge.errors import HeaderInvalid, HeaderMissing, HeaderRepeated
from bridge.http.request_and_reply import RECEIPTS_MAX, Limits, Request
from bridge.message import FIELDS, LONG_MAX, Field
from bridge.wire.header_text import did_you_mean, printable, unquote_strictly
from bridge.wire.headers import PARAMETERS, REQUEST_PARAMETERS, Headers, check_version, read_number
from bridge.wire.query_fields import merge_values, read_query

DESTINATION_MESSAGES: Final = "/v1/destinations/{destination}/messages"
DESTINATION_MESSAGE: Final = "/v1/destinations/{destination}/messages/{messageId}"

SIGNABLE: Final = frozenset((f"POST {DESTINATION_MESSAGES}", f"PUT {DESTINATION_MESSAGE}"))
"""The routes whose requests may have the signature of a webhook instead of a token."""

TRANSACTION: Final = "/v1/transactions/{transactionId}"
TRANSACTION_COMMIT: Final = f"{TRANSACTION}/commit"
TRANSACTION_ROLLBACK: Final = f"{TRANSACTION}/rollback"

_PREFIX: Final = "/v1/destinations/"
_TRANSACTIONS: Final = "/v1/transactions/"


class PathValues(NamedTuple):
    """What a path contains."""

    destination: str
    message_id: str | None = None


def template_of(path: str) -> str:
    """Return the template that a path matches, or else the path itself."""
    if path.startswith(_TRANSACTIONS):
        return _template_of_transaction(path)
    if not path.startswith(_PREFIX):
        return path
    match path.removeprefix(_PREFIX).split("/"):
        case [destination, "messages"] if destination:
            return DESTINATION_MESSAGES
        case [destination, "messages", message_id] if destination and message_id:
            return DESTINATION_MESSAGE
    return path


def path_values(path: str) -> PathValues:
    """Return the values of a path that matches a template.

    Servers do not decode paths. A messageId is decoded here, so it may contain `%2F`; the name of a destination has no
    character that is escaped. Raises `HeaderInvalid` for a messageId that is not UTF-8.
    """
    destination, _, message_id = path.removeprefix(_PREFIX).partition("/messages")
    return PathValues(destination, _decoded(message_id.removeprefix("/"), "messageId") if message_id else None)


def transaction_of(path: str) -> str:
    """Return the transactionId of a path. Raises `HeaderInvalid` if it is not UTF-8."""
    return _decoded(path.removeprefix(_TRANSACTIONS).partition("/")[0], "transactionId")


def _template_of_transaction(path: str) -> str:
    match path.removeprefix(_TRANSACTIONS).split("/"):
        case [name] if name:
            return TRANSACTION
        case [name, "commit"] if name:
            return TRANSACTION_COMMIT
        case [name, "rollback"] if name:
            return TRANSACTION_ROLLBACK
    return path


def _decoded(text: str, name: str) -> str:
    raw = text.encode("latin-1")
    try:
        return unquote_strictly(raw, name).decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{name}: {printable(raw)} is not UTF-8.") from None


D = TypeVar("D")
Params = Mapping[str, str]
"""Values by the name of the parameter, in lower case and without `x-oms-`."""

_QUERY_FIELDS_MAX: Final = 64
_BOOLEANS: Final = {"true": True, "false": False}
_QUERY_NAMES: Final = {name: name for name in REQUEST_PARAMETERS}
_REQUIRABLE: Final = {field.name.lower(): field for field in FIELDS if field.is_feature}
REQUIRE_HEADERS: Final = "headers"
"""The name in `x-oms-require` that is no field."""
_REQUIRABLE_NAMES: Final = {
    **{lower: field.name for lower, field in _REQUIRABLE.items()},
    REQUIRE_HEADERS: REQUIRE_HEADERS,
}
_CLIENT_FIELDS: Final = tuple(
    field.name.lower() for field in FIELDS if field.name not in ("storeTimestamp", "storeHost", "deliveryCount")
)
_PRODUCE: Final = ("version", "require", "transaction", "transaction-timeout", "transaction-check")
_GROUP: Final = ("version", "source", "consumerid", "receipt")
_FIELDS_BY_ROUTE: Final[Mapping[str, Collection[str]]] = {
    "POST /v1/messages": _CLIENT_FIELDS,
    f"POST {DESTINATION_MESSAGES}": [name for name in _CLIENT_FIELDS if name != "destination"],
    f"PUT {DESTINATION_MESSAGE}": [name for name in _CLIENT_FIELDS if name not in ("destination", "messageid")],
}
"""The fields of a message that a request may have as headers, in lower case."""
_PARAMETERS_BY_ROUTE: Final[Mapping[str, Collection[str]]] = {
    "POST /v1/messages": _PRODUCE,
    f"POST {DESTINATION_MESSAGES}": _PRODUCE,
    f"PUT {DESTINATION_MESSAGE}": _PRODUCE,
    "POST /v1/stream": ("version", "require"),
    "GET /v1/messages": (*_GROUP, "ack", "waitmills", "leasemills", "requestid"),
    "GET /v1/push": (*_GROUP, "ack", "waitmills", "leasemills", "credit", "maxmessages"),
    "POST /v1/push": ("version", "source", "consumerid", "callbackurl", "credit", "maxmessages"),
    "POST /v1/ack": _GROUP,
    "POST /v1/nack": (*_GROUP, "delaymills"),
    "POST /v1/extend": (*_GROUP, "leasemills"),
    "GET /v1/transactions": ("version",),
    f"GET {TRANSACTION}": ("version",),
    f"POST {TRANSACTION_COMMIT}": ("version",),
    f"POST {TRANSACTION_ROLLBACK}": ("version",),
    "GET /v1/logs": ("version",),
    "GET /v1/log": ("version", "log", "offset", "maxmessages"),
}
"""The parameters of a route; the other routes have none."""


def parse_params(headers: Params, query: bytes, route: str = "") -> Params:
    """Return the parameters of headers and query. Raises as `merge`; `HeaderMissing`, `VersionUnsupported`."""
    params = merge(headers, query, route) if query else headers
    check_version(params.get("version"))
    return params


def merge(headers: Params, query: bytes, route: str = "") -> Params:
    """Return headers and query parameters as one: "a header wins, both with different values is a 400".

    `route`: whose parameters an unknown one may mean; empty: any.
    Raises `HeaderInvalid` for an unknown parameter, `HeaderRepeated` for one that is given twice.
    """
    if not query:
        return headers
    merged: dict[str, str] = {}
    for given, value in split_query(query):
        name = given.lower()
        if name not in PARAMETERS:
            raise _unknown(given, route)
        if name in merged or headers.get(name, value) != value:
            raise HeaderRepeated(f"{name} is given twice, in the query or with different values in query and header.")
        merged[name] = value
    return {**merged, **headers}


def split_query(query: bytes) -> Sequence[Sequence[str]]:
    """Return the parameters of a query, decoded. Raises `HeaderInvalid`; an empty query has none."""
    if not query:
        return []
    try:
        return _split_plain(query) or parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError:
        raise HeaderInvalid("The query is not a list of name=value with UTF-8 behind each %xx.") from None


def header_names(route: str) -> Mapping[str, str]:
    """Return the x-oms- headers that a request of a route takes, by their names without prefix, for suggestions."""
    fields = {name: f"x-oms-h-{name}" for name in _FIELDS_BY_ROUTE.get(route, ())}
    return fields | {name: f"x-oms-{name}" for name in _PARAMETERS_BY_ROUTE.get(route, ())}


def _unknown(given: str, route: str) -> HeaderInvalid:
    known = {name: name for name in header_names(route)} if route else _QUERY_NAMES
    hint = did_you_mean(given.lower().removeprefix("x-oms-"), known) or "; GET /docs lists all of them."
    return HeaderInvalid(f"unknown query parameter `{printable(given.encode())}`{hint}")


def _split_plain(query: bytes) -> list[list[str]]:
    """Split a query without escapes, as nearly all are: 1.7 us, `parse_qsl` takes 3.9. Returns none for another."""
    if b"%" in query or b"+" in query or not query.isascii():
        return []
    pairs = [pair.split("=", 1) for pair in query.decode("ascii").split("&")]
    if len(pairs) > _QUERY_FIELDS_MAX or min(map(len, pairs)) == 1:
        return []
    return pairs


def parse_subscription(params: Params) -> SubscriptionKey:
    """Return the destination and group to consume from. Raises `HeaderMissing`, `DestinationInvalid`."""
    return SubscriptionKey.checked(
        required(params, "source", "the queue or topic to consume from"),
        required(params, "consumerid", "the consumer group"),
    )


def parse_optional_subscription(params: Params) -> SubscriptionKey | None:
    """Return the group named beside receipts, if there is one. Raises `HeaderMissing` for one half of a name."""
    if "source" not in params and "consumerid" not in params:
        return None
    return SubscriptionKey.checked(
        required(params, "source", "it goes with x-oms-consumerid"),
        required(params, "consumerid", "it goes with x-oms-source"),
    )


def parse_lease(params: Params, limits: Limits) -> int:
    """Return `x-oms-leasemills`, 1 to `max_lease` ms, or the default. Raises `HeaderInvalid`."""
    return positive(params, "leasemills", limits.lease, limits.max_lease)


class Requirements(NamedTuple):
    """What must be honoured of each message of a produce."""

    fields: Sequence[Field] = ()
    headers: bool = False
    """Consumers must get the fields and properties as headers, not in the JSON form."""


def parse_require(params: Params) -> Requirements:
    """Return what `x-oms-require: delayTime,priority,headers` names. Raises `HeaderInvalid` for another name."""
    text = params.get("require")
    if not text:
        return Requirements()
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in _REQUIRABLE_NAMES:
            hint = did_you_mean(name, _REQUIRABLE_NAMES) or f"; {', '.join(_REQUIRABLE_NAMES.values())} are allowed."
            raise HeaderInvalid(f"x-oms-require: unknown field `{printable(name.encode('utf-8', 'replace'))}`{hint}")
    return Requirements([_REQUIRABLE[name] for name in names if name != REQUIRE_HEADERS], REQUIRE_HEADERS in names)


def parse_receipts(params: Params) -> list[str]:
    """Return the receipts of `x-oms-receipt`, "one, or several separated by commas"; none when it is absent."""
    if "receipt" not in params:
        return []
    receipts = list(map(str.strip, params["receipt"].split(",")))
    if not all(receipts) or len(receipts) > RECEIPTS_MAX:
        raise HeaderInvalid(f"x-oms-receipt must be 1 to {RECEIPTS_MAX} receipts, separated by commas.")
    return receipts


def required(params: Params, name: str, meaning: str) -> str:
    """Return the text of a parameter. Raises `HeaderMissing`."""
    if name not in params:
        raise HeaderMissing(f"x-oms-{name} is required: {meaning}.")
    return params[name]


def flag(params: Params, name: str) -> bool:
    """Return a boolean, false by default. Raises `HeaderInvalid` for anything but `true` and `false`."""
    text = params.get(name, "false")
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise HeaderInvalid(f"x-oms-{name} must be true or false, not {printable(text.encode())}.")
    return value


def number(params: Params, name: str, default: int, maximum: int = LONG_MAX) -> int:
    """Return a whole number from 0 to maximum. Raises `HeaderInvalid`."""
    return read_number(f"x-oms-{name}", params[name], maximum) if name in params else default


def positive(params: Params, name: str, default: D, maximum: int = LONG_MAX) -> int | D:
    """Return a whole number from 1 to maximum, or the default when it is absent. Raises `HeaderInvalid`."""
    if name not in params:
        return default
    return read_number(f"x-oms-{name}", params[name], maximum, minimum=1)


def url_headers(request: Request, headers: Headers, now: int) -> Headers:
    """Return the headers with what the URL of the request sets. `now`: ms since 1970.

    `x-oms-version` is optional. Raises `HeaderInvalid`; `HeaderRepeated` if URL and headers contradict each other;
    `VersionUnsupported`.
    """
    in_path = path_values(request.path)
    if "version" in headers.parameters:
        check_version(headers.parameters["version"])
    query = read_query(split_query(request.query), headers.fields.get("born_timestamp", now))
    fields = merge_values(headers.fields, query.fields)
    fields = merge_values(fields, {name: value for name, value in in_path._asdict().items() if value is not None})
    return headers._replace(fields=fields, parameters=merge_values(headers.parameters, query.parameters))
