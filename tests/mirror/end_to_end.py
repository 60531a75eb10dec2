"""The steps of an end-to-end test: publish through a bridge, mirror, query, reconcile."""

import json

import httpx
from click.testing import CliRunner

from bridge.cli.program import main
from tests.mirror.deployment import Deployment

FIRST, ALL = 322, 373
"""Messages after `publish_first`, and after `publish_more` too."""


def numbered(amount: int, first: int = 0) -> list[str]:
    """Return bodies, each with its own number."""
    return [f'{{"order": {number}}}' for number in range(first, first + amount)]


def publish_first(place: Deployment) -> None:
    """Publish messages with a key and a property, some with a delay, and two in a transaction.

    Others are prepared in transactions that stay open or are rolled back: the mirror must not see them.
    """
    place.publish("orders", numbered(300), "--key", "customer-7", "--property", "region=eu")
    place.publish("reminders", numbered(20), "--delay-ms", "1")
    headers, body = {"x-oms-version": "1.0.0", "content-type": "application/json"}, b'{"paid": "in full"}'
    with httpx.Client(base_url=place.bridge.url, headers=headers, trust_env=False) as client:
        for name, end in (("paid", "commit"), ("unpaid", "rollback"), ("undecided", None)):
            for destination in ("orders", "bills"):
                prepared = {"x-oms-h-destination": destination, "x-oms-transaction": "prepare"}
                answer = client.post("/v1/messages", headers=prepared | {"x-oms-h-transactionid": name}, content=body)
                assert answer.status_code == 200, answer.text
            if end is not None:
                assert client.post(f"/v1/transactions/{name}/{end}").status_code == 200


def publish_more(place: Deployment) -> None:
    """Publish to a known destination and to a new one."""
    place.publish("orders", numbered(50, 300))
    place.publish("made-meanwhile", ["first"])


def assert_queried(place: Deployment) -> None:
    """SQL finds every message once, with its key and its property, and of transactions what was committed."""
    counts = "SELECT count(*) n, count(DISTINCT message_id) ids FROM messages"
    assert json.loads(place.mirror("query", "--json", counts).stdout) == {"n": ALL, "ids": ALL}
    paid = "SELECT transaction_id, destination FROM messages WHERE json->>'paid' = 'in full' ORDER BY destination"
    found = [json.loads(line) for line in place.mirror("query", "--json", paid).stdout.splitlines()]
    assert [(a["transaction_id"], a["destination"]) for a in found] == [("paid", "bills"), ("paid", "orders")]
    what = "SELECT message_key, properties['region'] region, count(*) n FROM messages"
    keys = f"{what} WHERE destination = 'orders' GROUP BY ALL ORDER BY n"
    answers = [json.loads(line) for line in place.mirror("query", "--json", keys).stdout.splitlines()]
    assert [(a["message_key"], a["region"], a["n"]) for a in answers] == [(None, None, 51), ("customer-7", "eu", 300)]


def assert_verified(place: Deployment) -> None:
    """Mirror, backend and ledger match; the command runs here, in the session that the tests share."""
    given = ["mirror", "verify", "--out", str(place.out), *place.source, "--ledger", str(place.ledger), "--json"]
    done = CliRunner().invoke(main, given, catch_exceptions=False)
    assert (done.exit_code, json.loads(done.stdout)["findings"]) == (0, []), done.output


def assert_mirrored_twice(place: Deployment) -> None:
    """Two jobs, each in its own process: the second begins where the first ended."""
    publish_first(place)
    assert f"{FIRST} rows mirrored" in place.once()
    publish_more(place)
    assert f"{ALL - FIRST} rows mirrored" in place.once()
    assert_queried(place)
    assert_verified(place)
