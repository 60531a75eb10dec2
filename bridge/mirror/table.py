"""The mirror's Delta tables as Python reads them: files, commits and rows, through delta-rs. Needs no JVM.

Files that are in the folder and not in the table's log are no part of the table: only the log says what is.
"""

import json
import os
import re
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as pds
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, S3FileSystem, SubTreeFileSystem

from bridge.errors import CannotStart
from bridge.mirror.offsets import Record, complete, from_json, to_json
from bridge.mirror.schema import PARTITION, STATISTICS, TABLE_SCHEMA
from bridge.settings import redact

Name = Literal["messages", "quarantine"]
MESSAGES: Final[Name] = "messages"
"""Every message, dead letters too, once."""
QUARANTINE: Final[Name] = "quarantine"
"""What could not be read as a message."""
NAMES: Final[tuple[Name, ...]] = (MESSAGES, QUARANTINE)
WHOLE_EVERY: Final = 100
"""Commits of batches from one record with all logs to the next, at most."""
LATEST: Final = 20
"""Commits among which a batch's own is looked for: upkeep may have committed after it."""
_UNUSABLE: Final = frozenset("[]%")
"""Characters of a path with which delta-rs fails, or opens another path."""
_ARROW: Final = re.compile(r"\x1b\[\d+m|↳")
_PROPERTIES: Final[dict[str, str | None]] = {
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS),
    "delta.logRetentionDuration": "interval 7 days",  # a version older than this cannot be read again
}


class Day(NamedTuple):
    """One partition of a table: what was mirrored on a day, in UTC."""

    table: Name
    date: str
    """As in the path: `2026-11-21`."""

    @property
    def path(self) -> str:
        """Its folder, relative to the mirror."""
        return f"{self.table}/date={self.date}"

    def ended(self, by: datetime) -> bool:
        """Whether it was over at that time."""
        return date.fromisoformat(self.date) < by.astimezone(UTC).date()


class File(NamedTuple):
    """One Parquet file of a table."""

    path: str
    """Relative to the table."""
    day: Day
    rows: int
    bytes: int
    mirrored: datetime
    """When the newest of its rows was mirrored."""


class Commit(NamedTuple):
    """One version of a table."""

    operation: str
    """As Delta names it: WRITE, OPTIMIZE, DELETE, VACUUM START and so on."""
    appends: bool
    """Whether it only added rows."""
    metrics: Mapping[str, Any]
    record: Record | None
    """Which offsets the mirror held then, at least; None: another program's commit."""

    @property
    def of_batch(self) -> bool:
        """Whether it added rows: then the record is exact. Upkeep repeats one that later batches may have replaced."""
        return self.operation == "WRITE" and self.appends


class Table:
    """One table at one version."""

    def __init__(self, delta: DeltaTable, name: Name) -> None:
        self.delta = delta
        self.name = name

    @classmethod
    def require(cls, out: str, name: Name = MESSAGES, as_of: int | datetime | None = None) -> Self:
        """Open a table of the mirror in `out`.

        `as_of`: a version, or a time: the newest version that is not younger. Raises `CannotStart` if there is no
        table, it cannot be read, or it no longer has that version.
        """
        try:
            table = DeltaTable(location(out, name), storage_options=storage_options())
        except TableNotFoundError:
            raise CannotStart(f"There is no mirror in {shown(out)}.") from None
        except (DeltaError, OSError, ValueError) as error:
            raise CannotStart(f"{shown(out)} cannot be read: {one_line(error)}") from None
        if as_of is not None:
            try:
                table.load_as_version(as_of)
            except (DeltaError, OSError, ValueError, OverflowError) as error:
                raise CannotStart(f"{shown(out)} has no version of {as_of}: {one_line(error)}") from None
        return cls(table, name)

    @property
    def time(self) -> int:
        """When that version was committed, ms since 1970."""
        return int(self.delta.history(1)[-1]["timestamp"])  # of an old version, delta-rs returns the later ones, too

    def files(self) -> Iterator[File]:
        """Yield the table's files."""
        for fields in pa.table(self.delta.get_add_actions(flatten=True)).to_pylist():
            day = Day(self.name, str(fields[f"partition.{PARTITION}"]))
            rows, size = fields["num_records"] or 0, fields["size_bytes"]
            yield File(unquote(fields["path"]), day, rows, size, fields.get("max.mirrored_timestamp"))

    def days(self) -> dict[Day, list[File]]:
        """Return the table's files by day, the oldest first."""
        found: defaultdict[Day, list[File]] = defaultdict(list)
        for file in self.files():
            found[file.day].append(file)
        return dict(sorted(found.items()))

    def commits(self, most: int | None = None) -> Iterator[Commit]:
        """Yield the commits that the log still holds, the newest first. Raises `CannotStart`."""
        for entry in self.delta.history(most):
            try:
                record = from_json(entry.get("userMetadata"))
            except ValueError as error:
                raise CannotStart(f"Version {entry['version']} of the mirror cannot be read: {error}.") from None
            appends = (entry.get("operationParameters") or {}).get("mode") == "Append"
            yield Commit(entry["operation"], appends, entry.get("operationMetrics") or {}, record)

    def record(self) -> Record | None:
        """Return the newest record of the offsets that the mirror holds, with all logs; None: the log holds none."""
        for most in (1, LATEST, 2 * WHOLE_EVERY, None):
            if (record := complete(self._records(most))) is not None:
                return record
        return None

    def same_record(self) -> CommitProperties:
        """Return the metadata of a commit that changes no offsets: Delta deletes old commits, and the record stays."""
        record = self.record()
        return CommitProperties(custom_metadata=None if record is None else {"userMetadata": to_json(record)})

    def newest_record(self) -> Record | None:
        """Return the newest record of the last commits, maybe of the logs of its batch only; None: there is none."""
        for most in (1, LATEST):
            if records := self._records(most):
                return records[0]
        return None

    def commit_record(self, record: Record, application: str) -> None:
        """Commit a record without rows, numbered by its sequence as a batch of this application."""
        properties = CommitProperties(
            custom_metadata={"userMetadata": to_json(record)},
            app_transactions=[Transaction(application, record.sequence)],
        )
        schema = pa.schema(self.delta.schema().to_arrow())
        write_deltalake(self.delta, schema.empty_table(), mode="append", commit_properties=properties)

    def _records(self, most: int | None) -> list[Record]:
        """Return the records of the newest commits, the newest first: upkeep may repeat an older one."""
        commits = list(self.commits(most))
        if most == 1 and commits and not commits[0].of_batch:
            return []
        records = [commit.record for commit in commits if commit.record is not None]
        return sorted(records, key=lambda r: (r.written, r.batch, r.sequence, r.is_whole), reverse=True)

    def dataset(self) -> pds.Dataset:
        """Return the rows, for DuckDB and pyarrow; columns and files that a query does not need are not read."""
        dataset: pds.Dataset = self.delta.to_pyarrow_dataset(filesystem=_file_system(self.delta.table_uri))
        return dataset


def _file_system(place: str) -> FileSystem | None:
    """Return Arrow's own file system for the URL of a table; None: it has none that is tested here.

    delta-rs reads files by Python, and DuckDB 2.0 asks pyarrow for rows while it holds Python's lock: a mutex of Arrow,
    held by a thread that waits for that lock, stopped a process for good.
    """
    url = urlsplit(place)
    match url.scheme:
        case "file":
            return SubTreeFileSystem(unquote(url.path), LocalFileSystem())
        case "s3" | "s3a":
            # of the `AWS_…` variables it does not take this one from the environment
            endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL") or "https:")
            store = S3FileSystem(scheme=endpoint.scheme, endpoint_override=endpoint.netloc or None)
            return SubTreeFileSystem(url.netloc + unquote(url.path), store)
        case _:
            return None


def location(out: str, name: str) -> str:
    """Return the URL of a folder of the mirror, as delta-rs names it. Raises `CannotStart` for one of `_UNUSABLE`."""
    if found := _UNUSABLE.intersection(out if is_remote(out) else str(local_path(out))):
        raise CannotStart(
            f"The path {shown(out)} holds {' '.join(sorted(found))}: the mirror's tables cannot lie there."
        )
    return f"{out.rstrip('/')}/{name}" if is_remote(out) else (local_path(out) / name).as_uri()


def is_remote(out: str) -> bool:
    """Whether a path is a URL of something else than this machine's disk."""
    return "://" in out and not out.startswith("file:")


def local_path(out: str) -> Path:
    """Return a path of this machine."""
    return Path(unquote(urlsplit(out).path) if out.startswith("file:") else out).absolute()


def spark_path(out: str, name: str) -> str:
    """Return the URI of a table, or of another folder of the mirror, as Spark names it."""
    return f"{out.rstrip('/')}/{name}" if is_remote(out) else f"file:{local_path(out) / name}"


def create(out: str) -> None:
    """Create the tables that do not exist yet, and add the columns that older ones lack.

    Raises `CannotStart` if nothing can be written there.
    """
    schema = Schema.from_arrow(TABLE_SCHEMA)
    for name in reversed(NAMES):  # so that quarantine is there when the messages are
        try:
            delta = DeltaTable.create(
                location(out, name),
                schema,
                mode="ignore",
                partition_by=[PARTITION],
                configuration=_PROPERTIES,
                storage_options=storage_options(),
            )
            if delta.version() == 0:
                _write_checksum(location(out, name))
            _add_columns(Table(delta, name), schema)
        except (DeltaError, OSError, ValueError) as error:
            raise CannotStart(f"{shown(out)} cannot be written: {one_line(error)}") from None


def _add_columns(table: Table, schema: Schema) -> None:
    """Add the columns of later versions to a table of the mirror; another program's table stays as it is."""
    there = {field.name for field in table.delta.schema().fields}
    missing = [field for field in schema.fields if field.name not in there]
    if missing and "schema_version" in there:
        table.delta.alter.add_columns(missing, commit_properties=table.same_record())


def _write_checksum(place: str) -> None:
    """Write the version checksum file of a table that is only created, as delta-rs does not; of another do nothing.

    Delta's protocol, "Version Checksum File". Without it the first batch waits until Spark has reconstructed the state:
    1.3 s.
    """
    log = store(f"{place}/_delta_log")
    with log.open_input_stream(f"{0:020d}.json") as file:
        actions = ChainMap(*map(json.loads, file.read().splitlines()))
    if actions.keys() != {"commitInfo", "metaData", "protocol"}:
        return
    counts = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    nothing: dict[str, Any] = {"setTransactions": [], "domainMetadata": [], "allFiles": []}
    state = nothing | {"metadata": actions["metaData"], "protocol": actions["protocol"]}
    with log.open_output_stream(f"{0:020d}.crc", buffer_size=65_536) as file:  # delta-rs takes only what is buffered
        file.write(json.dumps(counts | state).encode())


def store(place: str) -> FileSystem:
    """Return delta-rs' file system in a folder that `location` names: a file appears at once and whole."""
    return PyFileSystem(DeltaStorageHandler(place, storage_options()))


def storage_options() -> dict[str, str]:
    """Return what delta-rs does not take from the environment's `AWS_…` variables as it is."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    options = {"AWS_FORCE_CREDENTIAL_LOAD": "true"}  # profiles too, which it reads only for Amazon's own endpoints
    return options | {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else options


def shown(out: str) -> str:
    """Return a path without the secrets that some put into it: `s3a://key:secret@bucket`."""
    return redact(out) if "://" in out and "@" in out else out


def one_line(error: Exception) -> str:
    """Return the beginning of an error's text, in one line."""
    return flat(error)[:400] or type(error).__name__


def flat(error: BaseException) -> str:
    """Return the text of an error of delta-rs, which is several lines with arrows, in one."""
    return " ".join(_ARROW.sub(" ", str(error)).split())
