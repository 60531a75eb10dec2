"""Where one batch ends and the next begins."""

from bridge.wire.callback_batch import BatchSplitter


def test_a_batch_ends_at_either_limit() -> None:
    splitter = BatchSplitter[bytes](3, 10)
    complete = [splitter.add(bytes(size), size) for size in (4, 4, 4, 11, 10, 5, 5, 1, 1, 1, 1)]
    batches = [*filter(None, complete), splitter.rest()]
    assert [[len(body) for body in batch] for batch in batches] == [[4, 4], [4], [11], [10], [5, 5], [1, 1, 1], [1]]
    assert splitter.rest() == []
