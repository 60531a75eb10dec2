"""The adapter test kit notices defects, and quotes the contract as it is."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters import base, testing
from adapters.testing import (
    AdapterContract,
    DeletableContract,
    DurableContract,
    FullContract,
    Harness,
    MetadataStoreContract,
    PublishesManyContract,
    ReplayableContract,
    Session,
    TransactionalContract,
    harness,
)

VOLATILE = {
    "Backward": "test_concurrent_publishes_keep_their_order_within_a_partition",
    "PublishOvertakes": "test_concurrent_publishes_keep_their_order_within_a_partition",
    "LosesProperties": "test_every_field_is_delivered_unchanged",
    "LosesKeys": "test_every_field_is_delivered_unchanged",
    "EndsBodies": "test_every_field_is_delivered_unchanged",
    "PublishRaises": "test_publish_raises_through_its_future",
    "NotDelayed": "test_a_delayed_message_takes_its_place_when_it_is_due",
    "HoldsUp": "test_a_delayed_message_takes_its_place_when_it_is_due",
    "NeverAtHand": "test_stored_messages_are_available_when_subscribe_returns",
    "IgnoresLimit": "test_a_fetch_returns_at_most_limit",
    "IgnoresBytes": "test_the_sizes_of_a_fetch_do_not_exceed_max_bytes",
    "Empty": "test_a_fetch_returns_at_most_limit",
    "CancelLoses": "test_a_cancelled_fetch_loses_nothing",
    "FetchesOthersAgain": "test_messages_are_fetched_again",
    "FetchesAgainOnce": "test_what_was_fetched_again_is_kept_until_it_is_settled",
    "OnePartition": "test_a_position_is_unique_in_its_partition",
    "FetchRaises": "test_closing_ends_a_fetch_through_its_future",
    "OneGroup": "test_each_group_gets_every_message",
    "OneDestination": "test_a_destination_has_its_own_messages",
    "AlwaysLatest": "test_a_new_group_starts_at_the_oldest_message",
    "NeverLatest": "test_latest_starts_after_the_newest_message",
    "ForgetsGroups": "test_a_closed_group_keeps_its_position",
    "SettlesNothing": "test_settled_messages_are_not_delivered_again",
    "ReleaseSettles": "test_settled_messages_are_not_delivered_again",
    "NewIds": "test_settled_messages_are_not_delivered_again",
    "SettlesOnce": "test_settling_twice_is_harmless",
    "WithoutAttempts": "test_released_messages_are_delivered_again_with_their_attempts",
    "ClosesOnce": "test_closing_a_subscription_twice_is_harmless",
    "FewerPartitions": "test_the_number_of_partitions_stays",
    "AlwaysCreates": "test_a_destination_that_may_not_be_created_is_not",
    "UnknownField": "test_features_name_every_field_that_asks_for_something",
    "ReversesMany": "test_many_messages_are_published_in_one_call",
    "GivesUpMany": "test_each_of_many_messages_has_its_own_result",
    "NamedGauges": "test_figures_are_few_and_not_named_by_clients",
    "PurgesNothing": "test_a_purge_drops_every_message_of_a_destination",
    "PurgesAllGroups": "test_a_purge_of_a_group_settles_its_messages_only",
    "DeletesNoGroup": "test_a_deleted_group_starts_anew",
    "DeletesNoMessage": "test_a_deleted_destination_is_created_anew",
    "ShowsPrepared": "test_a_commit_stores_what_no_group_got_before",
    "CommitsBackward": "test_a_commit_stores_what_no_group_got_before",
    "CommitsWhatExpired": "test_messages_are_stored_as_they_were_completed",
    "RollbackCommits": "test_a_rollback_drops_the_messages",
    "CommitsAgain": "test_a_transaction_ends_once",
    "EndsUnknown": "test_an_unknown_transaction_is_refused",
    "BeginsAgain": "test_transactions_are_known_from_their_first_message_on",
    "EndsBeforeCompleting": "test_a_commit_that_cannot_be_completed_changes_nothing",
    "EndsBoth": "test_two_ends_at_once_are_one",
    "OneTransaction": "test_many_transactions_are_open_at_once",
    "SaysDurable": "test_the_test_class_has_the_mix_in_of_every_feature",
    "RefusesAndKeeps": "test_a_full_backend_refuses_and_keeps_its_messages",
}
"""A defect of `broken`, and the test of the kit that must fail because of it."""

DURABLE = {
    "ClosesLate": "test_closing_stores_accepted_messages",
    "DropsNotes": "test_entries_are_written_replaced_and_deleted",
    "NotesTooEarly": "test_entries_are_unavailable_before_the_start",
    "ForgetsAttempts": "test_messages_and_attempts_survive_closing",
    "KeepsNoPrepared": "test_transactions_survive_what_a_stored_message_survives",
    "AnswersEarly": "test_messages_and_attempts_survive_closing",
}


class Volatile(
    AdapterContract,
    PublishesManyContract,
    ReplayableContract,
    DeletableContract,
    TransactionalContract,
    FullContract,
):
    pass


class Durable(
    AdapterContract,
    DurableContract,
    MetadataStoreContract,
    PublishesManyContract,
    ReplayableContract,
    DeletableContract,
    TransactionalContract,
    FullContract,
):
    pass


async def verdict(kind: type[AdapterContract], test: str, broken: str, options: str) -> BaseException | None:
    """Return what one test of the kit says of a broken adapter."""
    url = f"{broken}@memory://?partitions=3{options}"
    try:
        async with Session(Harness("tests.adapters.broken:connect", url, f"{url}&max_messages=50")) as session:
            await getattr(kind(), test)(session)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a test of the kit fails with
        return error
    return None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what never comes be given up soon: every one of these tests ends so, or with a failed assertion."""
    for module in vars(testing).values():
        if inspect.ismodule(module) and hasattr(module, "GUARD"):
            monkeypatch.setattr(module, "GUARD", 3.0)
    monkeypatch.setattr(harness, "GUARD", 3.0)


@pytest.mark.usefixtures("impatient")
async def test_the_kit_notices_every_defect(tmp_path: Path) -> None:
    unnoticed = []
    for kind, defects in ((Volatile, VOLATILE), (Durable, DURABLE)):
        for broken, test in defects.items():
            options = f"&journal={tmp_path / broken}" if kind is Durable else ""
            if await verdict(kind, test, broken, options) is None:
                unnoticed.append((broken, test))
    assert unnoticed == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("test", sorted(set(VOLATILE.values())))
async def test_the_kit_blames_nobody_without_a_defect(test: str) -> None:
    assert await verdict(Volatile, test, "Wrapped", "") is None


def cases() -> list[Callable[..., Any]]:
    mixins = [found for found in vars(testing).values() if inspect.isclass(found) and "Contract" in found.__name__]
    return [case for mixin in mixins for name, case in inspect.getmembers(mixin, inspect.isfunction) if "test_" in name]


def test_every_case_quotes_the_contract() -> None:
    """What a case says that it judges stands in a docstring of `adapters/base.py`."""
    tree = ast.parse(Path(base.__file__).read_text("utf-8"))
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    contract = [" ".join(text.split()) for text in strings]
    wrong = []
    for case in cases():
        quotes = re.findall(r'"([^"]+)"', " ".join((case.__doc__ or "").split()))
        wrong += [
            (case.__name__, quote) for quote in quotes or [""] if not any(quote in text for text in contract if quote)
        ]
    assert wrong == []
    assert len(cases()) > 30
