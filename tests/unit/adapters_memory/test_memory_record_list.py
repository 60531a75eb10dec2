"""The list of a partition's records."""

import gc

from adapters.memory.partition import BLOCK, RecordList


def test_it_is_a_list_whose_elements_can_be_dropped() -> None:
    records, expected = RecordList(), []
    for number in range(2 * BLOCK + 3):
        assert len(records) == number
        records.append((number,))
        expected.append((number,))
    assert [records[index] for index in range(len(records))] == expected
    dropped = (0, BLOCK - 1, BLOCK, 2 * BLOCK, 2 * BLOCK + 2)
    for index in dropped:
        records.drop(index)
    assert [index for index, record in enumerate(records) if record is None] == list(dropped)
    kept = [record for number, record in enumerate(expected) if number not in dropped]
    assert [record for record in records if record is not None] == kept
    records.append((-1,))
    assert len(records) == 2 * BLOCK + 4
    assert records[2 * BLOCK + 3] == (-1,)


def test_the_garbage_collector_does_not_visit_full_blocks() -> None:
    records = RecordList()
    for number in range(BLOCK + 1):
        records.append((f"body {number}",))
    gc.collect()  # the records first
    gc.collect()
    assert not gc.get_referrers(records[0])  # it finds objects that a collection visits
    assert gc.get_referrers(records[BLOCK])
