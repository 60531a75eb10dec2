"""Whether the storage of a mirror can be reached, if it is not a disk: an outage of S3 is waited for, as a broker's."""

import re
from functools import cache
from typing import Final

from deltalake.fs import DeltaStorageHandler

from bridge.errors import BackendUnavailable
from bridge.mirror.table import MESSAGES, flat, is_remote, location, shown, storage_options

_QUICK: Final = {"max_retries": "2", "retry_timeout": "10s", "connect_timeout": "5s", "timeout": "10s"}
"""Of delta-rs, which otherwise tries for up to three minutes."""
_NO_ANSWER: Final = re.compile(
    r"HTTP error error .{0,150}"  # of delta-rs
    r"|(?:Unable to execute HTTP request|Client execution did not complete).{0,150}"  # of Amazon's SDK, in Spark
    r"|(?:non-2xx status code|Status Code:) (?:5\d\d|429|408)\b.{0,50}"  # of either: the server asks to try again
)


class StorageUnavailable(BackendUnavailable):
    """The storage of the mirror gives no answer."""


def outage(out: str, error: BaseException) -> StorageUnavailable | None:
    """Return the sentence about an error of delta-rs or Spark that is an outage of the storage; else None."""
    found = _NO_ANSWER.search(flat(error))
    return StorageUnavailable(f"{shown(out)} cannot be reached: {found[0]}") if found and is_remote(out) else None


def check_reachable(out: str) -> None:
    """Raise `StorageUnavailable` if there is no answer within seconds. A refusal is one."""
    if not is_remote(out):
        return
    try:
        _files(location(out, MESSAGES)).get_file_info(["_delta_log"])
    except (OSError, ValueError) as error:
        if (found := outage(out, error)) is not None:
            raise found from None


@cache
def _files(place: str) -> DeltaStorageHandler:
    return DeltaStorageHandler(place, storage_options() | _QUICK)  # kept: each new one asks for credentials
