"""Writes the golden journals of this version of the tables: `python -m tests.ledger.golden.make`."""

import gzip
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from adapters.memory.journal_schema import VERSION
from tests.http.callback_endpoint import Endpoint
from tests.http.wall import HOUR, WallClock
from tests.launch import Bridge
from tests.ledger.golden.observe import GROUPS, YEAR, backend, observe

_HERE: Final = Path(__file__).parent
_POISON: Final = 3
"""Deliveries after which a message is a dead letter."""


def main() -> None:
    """Write each journal beside what is found in it. Refuses to replace one."""
    folder = _HERE / str(VERSION)
    if folder.exists():
        sys.exit(f"{folder} is there already: what a version wrote does not change")
    with tempfile.TemporaryDirectory() as made:
        for how in ("stopped", "killed"):
            _make(Path(made) / how, how)
        folder.mkdir()
        for file in Path(made).glob("*/*.*"):
            if file.suffix in {".json", ".xz"}:
                shutil.copy(file, folder)


def _make(directory: Path, how: str) -> None:
    journal = directory / "journal"
    clock = WallClock(directory / "wall-clock")
    endpoint = Endpoint()  # does not listen: what is for it stays
    try:
        settings = {**endpoint.settings(OMS_DELIVERY__MAX_DELIVERIES=str(_POISON)), **clock.settings}
        with Bridge(directory, backend=backend(journal), settings=settings) as bridge:
            made = clock.now()
            with httpx.Client(base_url=bridge.url, trust_env=False, timeout=60) as http:
                _tell(_Talk(http), made, f"http://127.0.0.1:{endpoint.port}/calls?token=1")
            if how == "killed":
                bridge.kill()
            else:
                assert bridge.terminate() == 0
    finally:
        endpoint.close()
    with tarfile.open(directory / f"{how}.tar.xz", "w:xz") as archive:
        for file in sorted(journal.iterdir()):
            if file.name not in {"lock", "journal.db-shm"}:  # SQLite makes the latter anew
                archive.add(file, file.name)
    found = observe(directory / "again", journal, made)
    (directory / f"{how}.json").write_text(
        json.dumps({"made": made, "found": found}, indent=1, ensure_ascii=False) + "\n", "utf-8"
    )


class _Talk:
    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def produce(self, destination: str, name: str, body: bytes = b"body", **fields: object) -> None:
        headers = {"destination": destination, "messageid": name, "bornhost": "golden:1"} | fields
        self._ask("POST", "/v1/messages", {f"h-{field}": value for field, value in headers.items()}, body)

    def raw(self, headers: Mapping[str, str], body: bytes) -> None:
        answer = self._http.post("/v1/messages", headers={"x-oms-version": "1.0.0", **headers}, content=body)
        assert answer.status_code == 200, answer.text

    def take(self, source: str, group: str, name: str) -> str:
        asked = {"source": source, "consumerid": group, "ack": "true", "waitmills": 10_000}
        answer = self._ask("GET", "/v1/messages", asked)
        assert answer.headers.get("x-oms-h-messageid") == name, f"another message: {answer.headers}"
        return str(answer.headers["x-oms-receipt"])

    def ack(self, receipt: str) -> None:
        self._ask("POST", "/v1/ack", {"receipt": receipt})

    def nack(self, receipt: str) -> None:
        self._ask("POST", "/v1/nack", {"receipt": receipt})

    def register(self, source: str, url: str) -> None:
        self._ask("POST", "/v1/push", {"source": source, "consumerid": "app", "callbackurl": url, "credit": 3})

    def _ask(self, method: str, path: str, asked: Mapping[str, object], body: bytes = b"") -> httpx.Response:
        headers = {"x-oms-version": "1.0.0"} | {f"x-oms-{name}": str(value) for name, value in asked.items()}
        answer = self._http.request(method, path, headers=headers, content=body)
        assert answer.status_code < 300, answer.text
        return answer


def _tell(talk: _Talk, now: int, url: str) -> None:
    """Use everything of which a journal keeps something."""
    talk.produce("orders", "joins", messagekey="joining")
    for group in GROUPS[:2]:  # the last one is not there yet
        talk.ack(talk.take("orders", group, "joins"))
    # of one key: billing has settled the first, and has seen the second twice
    for name in ("key-1", "key-2", "key-3"):
        talk.produce("orders", name, messagekey="c12", partition=1)
    talk.ack(talk.take("orders", "billing", "key-1"))
    for _ in range(_POISON - 1):
        talk.nack(talk.take("orders", "billing", "key-2"))
    # settled beyond one that is not, in the same partition
    talk.produce("orders", "free-1", partition=1, priority=10)
    talk.ack(talk.take("orders", "billing", "free-1"))
    talk.produce("orders", "free-2", partition=1, priority=10)
    talk.ack(talk.take("orders", "billing", "free-2"))
    talk.raw(
        {
            "x-oms-h-destination": "orders",
            "x-oms-h-messageid*": "UTF-8''%E6%B3%A8%E6%96%87-7",
            "x-oms-h-messagekey*": "UTF-8''Z%C3%BCrich%20%F0%9F%9A%80",
            "x-oms-h-correlationid*": "UTF-8''%C3%A9",
            "x-oms-h-traceid": "t-1",
            "x-oms-h-transactionid": "x-1",
            "x-oms-h-bornhost": "golden:1",
            "x-oms-h-borntimestamp": str(now),
            "x-oms-h-expiretime": str(now + YEAR // 2),
            "x-oms-h-priority": "9",
            "x-oms-h-qos": "2",
            "x-oms-h-partition": "0",
            "x-oms-p-%4frder%49d": "7",
            "x-oms-p-city*": "UTF-8''Z%C3%BCrich",
            "x-oms-p-empty": "",
            "content-type": "text/plain; charset=utf-8",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "vendor=1",
        },
        bytes(range(256)),
    )
    packed = gzip.compress(b"packed" * 100, mtime=0)
    talk.produce("orders", "gzip", packed, compression="gzip", partition=0)
    talk.produce("orders", "unsynced", b"", durability=0, partition=0)
    # a dead letter: shipping could not process it
    for _ in range(_POISON):
        talk.nack(talk.take("orders", "shipping", "free-1"))
    talk.ack(talk.take("orders.dlq", "shipping", "free-1"))
    # delayed, and not in a log yet
    talk.produce("later", "soon", delaytime=HOUR // 2, borntimestamp=now, messagekey="a")
    talk.produce("later", "late", delaytime=YEAR // 2, borntimestamp=now, partition=1)
    talk.produce("later", "never", delaytime=YEAR // 2, borntimestamp=now, expiretime=now + YEAR // 2 + 1)
    # more than there is room for: the oldest that are settled go, and leave their offsets behind
    for number in range(40):
        talk.produce("full", f"full-{number:02}", partition=number % 2)
        talk.ack(talk.take("full", "billing", f"full-{number:02}"))
    talk.register("calls", url)


if __name__ == "__main__":
    main()
