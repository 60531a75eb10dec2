"""The header fields, row by row of the profile's table."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from .conversation import Conversation, Target, connection, now, refused

if TYPE_CHECKING:
    from tests.launch import Bridge

UNKNOWN_VERSIONS = ["2.0.0", "0.9.0", "1", "1.0", "1.0.0.0", "1.a.0", "v1.0.0", "", "1.0.0-beta", "1.-1.0"]
BAD_NAMES = ["", ".", "..", "a b", "a/b", "über", "a" * 250, "__internal", "amq.topic", "oms.own", "a*"]
BAD_NUMBERS = ["-1", "+1", "1.0", "", "1e3", "0x10", "1_000", "٣", "9223372036854775808", "9" * 40]


@pytest.mark.wire
async def test_every_version_one_is_served(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > | x-oms-version | String, `1.x.y` | client, required | 400 |
    """
    for version in ("1.0.0", "1.2.3", "1.0.99"):
        with subtests.test(version):
            headers = {"x-oms-version": version, "x-oms-h-destination": talk.destination}
            assert (await talk.http.post("/v1/messages", headers=headers)).status_code == 200


@pytest.mark.wire
async def test_another_version_is_refused(talk: Conversation) -> None:
    """
    > | x-oms-version | String, `1.x.y` | client, required | 400 |
    """
    for version in UNKNOWN_VERSIONS:
        headers = {"x-oms-version": version, "x-oms-h-destination": talk.destination}
        answer = await talk.http.post("/v1/messages", headers=headers)
        assert "x-oms-version" in refused(answer, 400, "version-unsupported")
        assert "1." in refused(await talk.get(version=version), 400, "version-unsupported")


@pytest.mark.wire
async def test_a_missing_version_is_refused(talk: Conversation) -> None:
    """
    > | x-oms-version | String, `1.x.y` | client, required | 400 |
    """
    answer = await talk.http.post("/v1/messages", headers={"x-oms-h-destination": talk.destination})
    assert "x-oms-version" in refused(answer, 400, "header-missing")
    assert "x-oms-version" in refused(await talk.get(version=None), 400, "header-missing")
    await talk.nothing()


@pytest.mark.wire
async def test_a_name_that_no_backend_could_hold_is_refused(talk: Conversation) -> None:
    """
    > | destination | String, `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, not an internal prefix | client,
    > required | 400 |
    """
    for name in BAD_NAMES:
        pairs = [(b"x-oms-version", b"1.0.0"), (b"x-oms-h-destination", name.encode())]
        answer = await talk.http.post("/v1/messages", headers=pairs)
        assert "x-oms-h-destination" in refused(
            answer, 400, "destination-invalid" if name and name.isascii() else "header-invalid"
        )
        answer = await talk.get(params={"source": name}, source=None)
        assert "x-oms-source" in refused(answer, 400, "destination-invalid")


async def test_the_longest_name_works(talk: Conversation) -> None:
    """
    > | destination | String, `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, not an internal prefix | client,
    > required | 400 |
    """
    name = f"{talk.destination}.Az_0-9.".ljust(249, "x")
    await talk.produce(b"far", destination=name)
    assert (await talk.take(source=name)).headers["x-oms-h-destination"] == name


@pytest.mark.wire
async def test_a_missing_destination_is_refused(talk: Conversation) -> None:
    """
    > | destination | String, `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, not an internal prefix | client,
    > required | 400 |
    """
    answer = await talk.http.post("/v1/messages", headers={"x-oms-version": "1.0.0"})
    assert "x-oms-h-destination" in refused(answer, 400, "header-missing")


async def test_the_bridge_fills_in_what_the_client_left_out(talk: Conversation) -> None:
    """
    > | messageId | String | client, else the bridge (UUIDv7) | filled; 400 in strict mode |

    > | bornTimestamp | Long, ms | client, else the bridge | filled; 400 in strict mode |

    > | bornHost | String | client, else peer address | filled; 400 in strict mode |
    """
    before = now()
    answer = await talk.produce()
    assert UUID(answer.headers["x-oms-h-messageid"]).version == 7
    taken = await talk.take()
    assert before - 1 <= int(taken.headers["x-oms-h-borntimestamp"]) <= now()
    assert re.fullmatch(r".+:\d+", taken.headers["x-oms-h-bornhost"])


async def test_what_the_client_says_of_itself_is_kept(talk: Conversation) -> None:
    """
    > | messageId | String | client, else the bridge (UUIDv7) | filled; 400 in strict mode |

    > | bornTimestamp | Long, ms | client, else the bridge | filled; 400 in strict mode |

    > | bornHost | String | client, else peer address | filled; 400 in strict mode |

    > | messageKey, correlationId, traceId, transactionId | String | client | |

    > - System and extension fields: `x-oms-h-<field>`, the binding's names, plus the ones the specification
    > has and the binding forgot: `x-oms-h-partition`, `x-oms-h-deliverycount`, `x-oms-h-qos`.
    """
    said: dict[str, Any] = {
        "messageid": "m-1",
        "borntimestamp": "1234567890123",
        "bornhost": "shop.example:99",
        "messagekey": "a key",
        "correlationid": "c-1",
        "traceid": "trace",
        "transactionid": "tx",
    }
    assert (await talk.produce(**said)).headers["x-oms-h-messageid"] == "m-1"
    taken = await talk.take()
    assert {name: taken.headers[f"x-oms-h-{name}"] for name in said} == said
    assert taken.headers["x-oms-h-destination"] == talk.destination


async def test_the_store_fields_are_the_bridges(talk: Conversation) -> None:
    """
    > | storeTimestamp, storeHost | Long, String | always the bridge; a client's value is replaced | |
    """
    answer = await talk.produce(storetimestamp=5, storehost="liar.example")
    taken = await talk.take()
    for headers in (answer.headers, taken.headers):
        assert int(headers["x-oms-h-storetimestamp"]) > 1_000_000_000_000
        assert headers["x-oms-h-storehost"] != "liar.example"


async def test_a_clients_delivery_count_is_dropped(talk: Conversation) -> None:
    """
    > | deliveryCount | Integer | the bridge, on delivery; 1 on the first | a client's value is dropped |
    """
    await talk.produce(deliverycount=9)
    assert (await talk.take()).count == 1


@pytest.mark.wire
async def test_a_number_that_is_none_or_out_of_range_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > so is a number that is not plain digits or is out of its type's range.

    > | expireTime | Long, epoch ms; `<= bornTimestamp` means "never expires" | client | 400 |

    > | delayTime | Long >= 0, ms from bornTimestamp | client | 400 |
    """
    for field in ("borntimestamp", "expiretime", "delaytime", "partition", "durability", "qos"):
        for value in BAD_NUMBERS:
            with subtests.test(f"{field}: {value!r}"):
                answer = await talk.post(pairs=[(f"x-oms-h-{field}".encode(), value.encode())])
                assert f"x-oms-h-{field}" in refused(answer, 400, "header-invalid")
    await talk.nothing(wait=0)


async def test_both_durabilities_are_served(talk: Conversation) -> None:
    """
    > | durability | 0 or 1 (1 = persisted before the 200) | client, default 1 | 400 |
    """
    for durability in (0, 1):
        await talk.produce(b"%d" % durability, durability=durability)
    assert {taken.body for taken in await talk.take_all(2)} == {b"0", b"1"}


async def test_every_quality_of_service_is_served(talk: Conversation) -> None:
    """
    > | qos | 0 at least once, 1 at most once, 2 exactly once | client, default 0 | 400 |
    """
    for qos in (0, 1, 2):
        answer = await talk.produce(b"%d" % qos, qos=qos)
        assert "qos=" in answer.headers["x-oms-applied"]
    taken = await talk.take_all(3)
    assert {(t.body.decode(), t.headers["x-oms-h-qos"]) for t in taken} == {("0", "0"), ("1", "1"), ("2", "2")}


@pytest.mark.wire
async def test_a_value_outside_its_range_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > | qos | 0 at least once, 1 at most once, 2 exactly once | client, default 0 | 400 |

    > | durability | 0 or 1 (1 = persisted before the 200) | client, default 1 | 400 |
    """
    beyond: list[dict[str, Any]] = [{"qos": 3}, {"durability": 2}, {"partition": 2**31}]
    for wrong in beyond:
        with subtests.test(str(wrong)):
            assert "allowed" in refused(await talk.post(**wrong), 400, "header-invalid")
    await talk.nothing()


@pytest.mark.wire
async def test_strict_mode_demands_what_a_client_can_know(bridge: Target, launch: Callable[..., "Bridge"]) -> None:
    """
    > Strict mode (`binding.strict`) demands every field that the binding marks Required and a client can know.

    > | messageId | String | client, else the bridge (UUIDv7) | filled; 400 in strict mode |
    """
    del bridge
    with launch(OMS_BINDING__STRICT="true") as strict:
        async with connection(strict.url) as http:
            talk = Conversation(http)
            whole: dict[str, Any] = {"messageid": "m", "borntimestamp": "1", "bornhost": "h"}
            for name in whole:
                rest = {n: v for n, v in whole.items() if n != name}
                assert f"x-oms-h-{name}" in refused(await talk.post(**rest), 400, "header-missing")
            await talk.nothing()
            await talk.produce(**whole)
