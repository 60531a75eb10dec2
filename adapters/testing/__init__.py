"""The adapter test kit: tests an adapter against the contract (`adapters/base.py`), without HTTP.

An adapter's own tests need a harness, and a class with the mix-ins for what the adapter offers:

    from adapters.testing import AdapterContract, DurableContract, Harness, MetadataStoreContract

    class TestNats(AdapterContract, DurableContract, MetadataStoreContract):
        @pytest.fixture
        def harness(self, nats_url: str) -> Harness:
            return Harness("oms_nats:connect", nats_url)

`pip install openmessaging-bridge[conformance]` installs what the kit needs: pytest and pytest-asyncio. The docstring
of each test quotes the sentence of the contract that it tests. The kit creates destinations and does not delete them:
use it with a test backend, with two partitions or more.
"""

# ruff: noqa: E402 - pytest needs the modules before they are imported, to rewrite their asserts

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from adapters.testing.delays import DeferringContract, DelayContract
from adapters.testing.deleting import DeletableContract, DeletableDelayContract
from adapters.testing.durable import DurableContract
from adapters.testing.features_and_closing import FeaturesAndClosingContract
from adapters.testing.fetching import FetchContract
from adapters.testing.groups import GroupContract
from adapters.testing.harness import Harness, KitReader, Session
from adapters.testing.limits import FullContract, UnreachableContract
from adapters.testing.metadata_store import MetadataStoreContract
from adapters.testing.publishing import PublishContract, PublishesManyContract
from adapters.testing.replay import ReplayableContract
from adapters.testing.settling import SettleContract
from adapters.testing.shared import SharedContract
from adapters.testing.transactions import TransactionalContract

__all__ = [
    "AdapterContract",
    "DeferringContract",
    "DelayContract",
    "DeletableContract",
    "DeletableDelayContract",
    "DurableContract",
    "FullContract",
    "Harness",
    "KitReader",
    "MetadataStoreContract",
    "PublishesManyContract",
    "ReplayableContract",
    "Session",
    "SharedContract",
    "TransactionalContract",
    "UnreachableContract",
]


class AdapterContract(
    FeaturesAndClosingContract, PublishContract, FetchContract, SettleContract, GroupContract, DelayContract
):
    """Tests for every adapter. Derive a test class from it, and from the mix-ins for what the adapter offers."""
