"""What every request of a consumer asks first: in which version, for which group."""

from collections.abc import Mapping

from bridge.engine.engine import GroupName
from bridge.http.exchange import Request
from bridge.wire import parameters
from bridge.wire.headers import check_version


def read_asked(request: Request) -> Mapping[str, str]:
    """Return what headers and query ask together. Raises `HeaderMissing` and `VersionUnsupported` for the version."""
    asked = parameters.merge(request.headers.parameters, request.query)
    check_version(asked.get("version"))
    return asked


def read_group(asked: Mapping[str, str]) -> GroupName:
    """Return the group that must be named. Raises `HeaderMissing` and `DestinationInvalid`."""
    return GroupName.checked(
        parameters.text(asked, "source", "the queue or topic to consume from"),
        parameters.text(asked, "consumerid", "the consumer group"),
    )
