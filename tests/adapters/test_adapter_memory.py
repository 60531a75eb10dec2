"""The memory backend passes the adapter test kit, with a journal and without."""

from pathlib import Path

import pytest

from adapters.testing import (
    AdapterContract,
    DeletableContract,
    DeletableDelayContract,
    DurableContract,
    FullContract,
    Harness,
    MetadataStoreContract,
    PublishesManyContract,
    ReplayableContract,
    TransactionalContract,
)


class TestMemory(
    AdapterContract,
    PublishesManyContract,
    ReplayableContract,
    DeletableContract,
    TransactionalContract,
    FullContract,
):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness("adapters.memory:connect", "memory://?partitions=3", "memory://?partitions=3&max_messages=50")


class TestJournal(
    AdapterContract,
    DurableContract,
    MetadataStoreContract,
    PublishesManyContract,
    ReplayableContract,
    DeletableContract,
    TransactionalContract,
    FullContract,
):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        url = f"memory://?partitions=3&journal={tmp_path / 'journal'}"
        return Harness("adapters.memory:connect", url, url + "&max_messages=50")


@pytest.mark.extended
class TestMemoryDelays(DeletableDelayContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness("adapters.memory:connect", "memory://?partitions=3")
