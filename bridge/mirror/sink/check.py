"""Whether a job may begin: whether its checkpoint fits the table of messages. Pure."""

from typing import NamedTuple

from bridge.errors import CannotStart
from bridge.mirror.offsets import Record


class Found(NamedTuple):
    """What was found."""

    out: str
    checkpoint: str
    query: str | None
    """Id of the checkpoint's query; None: there is no checkpoint."""
    planned: bool
    """Whether it has planned a batch: from then on its query goes on where the checkpoint says."""
    committed: int
    """Its last batch that is done; -1: none."""
    files: bool
    """Whether the table holds files."""
    record: Record | None
    """The newest of the table."""


def check(found: Found, *, resume: bool) -> None:
    """Raise `CannotStart` unless the job may begin. `resume`: whether a new query may go on after an earlier one."""
    if found.record is None:
        _check_new(found)
    elif found.query == found.record.query:
        if found.committed > found.record.batch:
            raise CannotStart(
                f"The checkpoint {found.checkpoint} has committed batch {found.committed}, and the table in "
                f"{found.out} ends with batch {found.record.batch}: the table is an old copy. Move the checkpoint away "
                "and run with --resume: the mirror continues after the table's last batch."
            )
    elif found.planned:
        raise CannotStart(
            f"The checkpoint {found.checkpoint} belongs to query {found.query}, and the last batch in {found.out} to "
            f"query {found.record.query}: use the folder of that query with --out, or move the checkpoint away and run "
            "with --resume."
        )
    elif not resume:
        raise CannotStart(
            f"{found.out} holds the batches of query {found.record.query}, and its checkpoint {found.checkpoint} is "
            "missing. If it was deleted, run with --resume: the mirror continues after its last batch. If another job "
            "writes to this folder, use another one with --out."
        )


def _check_new(found: Found) -> None:
    if found.files:
        raise CannotStart(
            f"{found.out} holds messages, and no commit that its log still has tells their offsets: another program "
            "wrote them, or the log was cut off. Use another folder with --out."
        )
    if found.committed >= 0:
        raise CannotStart(
            f"The checkpoint {found.checkpoint} has committed batch {found.committed}, and {found.out} holds no batch: "
            "the checkpoint belongs to another table, or the table was deleted. Move the checkpoint away to mirror "
            "everything from the beginning."
        )
