"""Tokens and the keys of issuers: what is refused, and how often keys are fetched."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import IdentityUnavailable, Unauthenticated
from bridge.identity.access import Access, AccessFiles
from bridge.identity.jwt_tokens import ALGORITHMS, Issuer, Keys
from bridge.identity.key_sets import BYTES_MAX, FORCED_PAUSE, REFRESH, WAITING_MAX, FetchedKeys, fetch_from
from bridge.identity.principals import StaticTokens
from bridge.identity.rules import Rules
from bridge.identity.watched_files import WatchedFile
from bridge.identity.yaml_content import read_yaml
from tests.tokens import AUDIENCE, ISSUER, TestIssuer


class Time:
    """A clock that a test sets, ms."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1_000_000

    def wall(self) -> int:
        return self.now

    def mono(self) -> int:
        return self.now


class Source:
    """Publishes keys, or fails."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.fetches = 0
        self.released = asyncio.Event()
        self.released.set()

    async def __call__(self) -> bytes:
        self.fetches += 1
        await self.released.wait()
        if self.answer is None:
            raise OSError("the issuer is down")
        return self.answer


@pytest.fixture(scope="module")
def issuer() -> TestIssuer:
    return TestIssuer()


@pytest.fixture
def access(tmp_path: Path) -> Callable[[Source, Time], Access]:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []")
    files = AccessFiles(
        WatchedFile("auth.rules", rules, lambda raw: Rules.parse(read_yaml(raw))),
        WatchedFile("auth.tokens", rules, lambda _: StaticTokens({})),
    )

    def build(source: Source, clock: Time) -> Access:
        known = Issuer("login", ISSUER, AUDIENCE, frozenset(ALGORITHMS), "sub", "groups")
        return Access(files, {ISSUER: (known, FetchedKeys("login", source, Keys.parse, clock))}, clock)

    return build


async def identify(access: Access, token: str) -> Any:  # noqa: ANN401 - a caller
    return await access.identify({b"authorization": b"Bearer " + token.encode()}, "192.0.2.1:5")


async def test_tokens_of_each_algorithm_name_their_principal(access: Any, issuer: TestIssuer) -> None:  # noqa: ANN401
    checked = access(Source(issuer.jwks()), Time())
    for kid in issuer.keys:
        caller = await identify(checked, issuer.token(kid, groups=["sales"], jti="7"))
        assert caller.identity.principal == "login:shop"
        assert caller.identity.groups == ("login:sales",)
        assert caller.identity.jti == "7"
    await identify(checked, issuer.token(aud=["other", AUDIENCE]))
    await identify(checked, issuer.token(exp=int(time.time()) - 20))  # within the leeway


async def test_forged_tokens_are_refused_with_the_reason(
    access: Any,  # noqa: ANN401
    issuer: TestIssuer,
    subtests: pytest.Subtests,
) -> None:
    source = Source(issuer.jwks())
    checked = access(source, Time())
    await identify(checked, issuer.token())
    said = {
        "expired": "the token has expired",
        "another audience": "the token is for another audience",
        "an unknown key": "the key of the token is not known",
        "another issuer": "the issuer of the token is not known",
        "alg none": "the algorithm of the token is not allowed",
        "HMAC with the public key": "the algorithm of the token is not allowed",
        "not yet valid": "the token is not valid yet",
        "crit": "the token has the header crit, which is not allowed",
        "another issuer's key of the same id": "the signature of the token is wrong",
        "oversized": "the token has more than 8192 bytes",
    }
    for what, token in issuer.forged().items():
        with subtests.test(what), pytest.raises(Unauthenticated) as caught:
            await identify(checked, token)
        assert said.get(what, "the ") in caught.value.detail
        assert caught.value.challenge is not None
        assert b'error="invalid_token"' in caught.value.challenge
    assert source.fetches == 1


async def test_a_token_ends_when_it_expires_although_it_is_remembered(access: Any, issuer: TestIssuer) -> None:  # noqa: ANN401
    clock = Time()
    checked = access(Source(issuer.jwks()), clock)
    token = issuer.token()
    caller = await identify(checked, token)
    assert checked.lost(caller.identity) is None
    clock.now += 601_000
    assert "expired" in checked.lost(caller.identity).detail
    await identify(checked, token)
    clock.now += 30_000
    with pytest.raises(Unauthenticated, match="the token has expired"):
        await identify(checked, token)


async def test_random_key_ids_force_a_fetch_in_ten_seconds_at_most(access: Any, issuer: TestIssuer) -> None:  # noqa: ANN401
    """An hour with the issuer down: valid tokens go on."""
    clock, source = Time(), Source(issuer.jwks("ec"))
    checked = access(source, clock)
    valid = issuer.token(exp=clock.now // 1000 + 7200)
    await identify(checked, valid)
    source.answer = None
    begun = source.fetches
    for second in range(3600):
        clock.now += 1000
        for number in range(3):
            with pytest.raises(Unauthenticated, match="the key of the token is not known"):
                await identify(checked, issuer.token(headers={"kid": f"{second}-{number}"}))
        await identify(checked, valid)
        if second % 600 == 0:
            await identify(checked, issuer.token(exp=clock.now // 1000 + 600, jti=str(second)))
    assert source.fetches - begun <= 3600_000 // FORCED_PAUSE + 1


async def test_one_fetch_goes_on_at_a_time_and_few_requests_wait_for_it(access: Any, issuer: TestIssuer) -> None:  # noqa: ANN401
    clock, source = Time(), Source(issuer.jwks("ec"))
    checked = access(source, clock)
    await identify(checked, issuer.token())
    clock.now += FORCED_PAUSE
    source.answer = issuer.jwks()
    source.released.clear()
    asking = [
        asyncio.create_task(identify(checked, issuer.token("rsa", jti=str(each)))) for each in range(WAITING_MAX + 5)
    ]
    await asyncio.wait(asking, return_when=asyncio.FIRST_EXCEPTION, timeout=30)
    assert source.fetches == 2
    await identify(checked, issuer.token(jti="meanwhile"))
    source.released.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert len([each for each in results if isinstance(each, Unauthenticated)]) == 5


async def test_a_new_key_is_found_by_the_first_token_that_names_it(access: Any, issuer: TestIssuer) -> None:  # noqa: ANN401
    clock, source = Time(), Source(issuer.jwks("ec"))
    checked = access(source, clock)
    await identify(checked, issuer.token())
    source.answer = issuer.jwks()
    clock.now += FORCED_PAUSE
    await identify(checked, issuer.token("rsa"))


async def test_keys_that_could_not_be_fetched_yet_are_a_503(access: Any, issuer: TestIssuer) -> None:  # noqa: ANN401
    clock, source = Time(), Source(None)
    checked = access(source, clock)
    with pytest.raises(IdentityUnavailable):
        await identify(checked, issuer.token())
    source.answer = issuer.jwks()
    with pytest.raises(IdentityUnavailable):
        await identify(checked, issuer.token())
    clock.now += FORCED_PAUSE
    await identify(checked, issuer.token())


@pytest.mark.parametrize("broken", [b"", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AA"}]}', b"[" * 9000])
async def test_the_last_good_keys_stay(broken: bytes, issuer: TestIssuer) -> None:
    clock, source = Time(), Source(issuer.jwks())
    keys = FetchedKeys("login", source, Keys.parse, clock)
    await keys.renew()
    assert keys.keys is not None
    assert len(keys.keys) == 3
    source.answer = broken
    clock.now += REFRESH
    keys.tick()
    await asyncio.sleep(0.01)
    assert source.fetches == 2
    assert len(keys.keys) == 3
    keys.tick()
    assert source.fetches == 2
    source.answer = issuer.jwks("ec")
    clock.now += FORCED_PAUSE
    keys.tick()
    await asyncio.sleep(0.01)
    assert len(keys.keys) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 302 Found\r\nlocation: /keys\r\ncontent-length: 0\r\n\r\n", "the issuer answered 302"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "the issuer answered 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BYTES_MAX + 1), "more than 1048576 bytes"),
    ],
)
async def test_a_fetch_follows_no_redirect_and_reads_no_more_than_it_may(answer: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ValueError, match=said):
        await fetch_from(f"http://127.0.0.1:{port}/keys", None)()
    server.close()


async def test_a_changed_file_that_is_wrong_is_refused_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("rules: []")
    file = WatchedFile("auth.rules", path, lambda raw: Rules.parse(read_yaml(raw)))
    path.write_text("rules: [{}]")
    assert not file.reload()
    assert not file.reload()
    assert file.refused
    assert caplog.text.count("a changed file is refused") == 1
    assert file.content.rules == []
    path.write_text("rules: [{principals: [a], allow: [produce], destinations: [o]}]")
    assert file.reload()
    assert not file.refused
    assert len(file.content.rules) == 1
    path.unlink()
    assert not file.reload()
    assert file.refused
    assert len(file.content.rules) == 1
