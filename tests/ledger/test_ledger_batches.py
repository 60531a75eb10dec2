"""The ledger of producers that send batches, against the memory backend: `kill -9` in the middle of them."""

import json
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.ledger.batches import results_of
from tests.ledger.book import Answer
from tests.ledger.client import Reply, Where
from tests.ledger.run import Progress, in_batches, run
from tests.ledger.stage import Stage
from tests.tiers import SOAK

MESSAGES = 20_000 if SOAK else 3_000
KILLS = 6 if SOAK else 2


@pytest.mark.parametrize("server", ["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
async def test_a_journal_keeps_each_message_of_a_batch(server: str, tmp_path: Path) -> None:
    with ExitStack() as bridges:
        where = Where()
        stage = Stage(tmp_path, {where: f"memory://?journal={tmp_path / 'journal'}"}, bridges, server=server)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            for kill in range(KILLS):
                await progress.reach((kill + 1) / (KILLS + 1))
                await stage.kill(where)
                await stage.start(where)

        for verdict in await run([where], f"ledger-{uuid4().hex}", MESSAGES, story, producers=in_batches):
            print(verdict)  # noqa: T201 - the counts are the result
            assert verdict.good, str(verdict)
            assert verdict.counts["answered stored"] >= MESSAGES
            assert verdict.counts["answered unknown"], "no kill fell into a batch"


@pytest.mark.extended
async def test_a_batch_that_is_in_memory_only_is_missed(tmp_path: Path) -> None:
    """The counterpart: the ledger of batches does see a loss."""
    with ExitStack() as bridges:
        where = Where()
        stage = Stage(tmp_path, {where: "memory://"}, bridges)
        await stage.start(where)

        async def story(progress: Progress) -> None:
            await progress.reach(0.5)
            await stage.kill(where)
            await stage.start(where)

        verdicts = await run([where], f"ledger-{uuid4().hex}", 2_000, story, silence=2, producers=in_batches)
        for verdict in verdicts:
            assert verdict.lost, str(verdict)


async def test_each_result_of_a_batch_is_read_as_what_became_of_its_message() -> None:
    stored, refused, unknown = Answer
    results = [
        {"status": 200, "messageId": "a"},
        {"status": 503, "retrySafe": True},
        {"status": 504, "retrySafe": False},
    ]
    assert results_of(Reply(207, {}, json.dumps(results).encode()), ["a", "b", "c"]) == [stored, refused, unknown]
    assert results_of(Reply(200, {}, json.dumps(results[:1]).encode()), ["a"]) == [stored]
    assert results_of(Reply(503, {}, b""), ["a", "b"]) == [refused] * 2
    assert results_of(Reply(-1, {}, b""), ["a", "b"]) == [refused] * 2
    assert results_of(Reply(0, {}, b""), ["a", "b"]) == [unknown] * 2
    wrong = {
        "a 200 with a failure": (Reply(200, {}, json.dumps(results).encode()), ["a", "b", "c"]),
        "a 207 without one": (Reply(207, {}, json.dumps(results[:1]).encode()), ["a"]),
        "the result of another message": (Reply(200, {}, json.dumps(results[:1]).encode()), ["b"]),
        "a result too few": (Reply(207, {}, json.dumps(results).encode()), ["a", "b", "c", "d"]),
    }
    for case, (reply, names) in wrong.items():
        with pytest.raises(AssertionError):
            pytest.fail(f"{case} was taken: {results_of(reply, names)}")
