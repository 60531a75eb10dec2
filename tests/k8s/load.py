"""`python load.py SECONDS URL DESTINATION`, in a pod: clients while bridges come and go, and a ledger of what they see.

Produces are repeated until they are answered 200, by their messageId; pulls wait, and each message is acknowledged.
Prints a JSON object: how many were sent and lost, which were delivered twice, and each kind of answer with its number.
"""

import base64
import http.client
import json
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterable

SECONDS, URL, DESTINATION = float(sys.argv[1]), urllib.parse.urlsplit(sys.argv[2]), sys.argv[3]
LAST = 8.0
"""Seconds before the end in which nothing is produced, so that all can be pulled."""
END = time.monotonic() + SECONDS
HEADERS = {"x-oms-version": "1.0.0"}
answers: Counter[str] = Counter()
sent: set[str] = set()
delivered: Counter[str] = Counter()


class Connection:
    """One client; `kept`: it keeps its connection."""

    def __init__(self, what: str, *, kept: bool) -> None:
        self.what, self._kept = what, kept
        self._http: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: "bytes | Iterable[bytes] | None" = None
    ) -> tuple[int, http.client.HTTPMessage | None, bytes]:
        """Return status, headers and body of the response; status 0 if the connection breaks."""
        try:
            if self._http is None:
                self._http = http.client.HTTPConnection(URL.netloc, timeout=70)
            self._http.request(method, path, body, HEADERS | headers, encode_chunked=True)
            response = self._http.getresponse()
            status, got, content = response.status, response.headers, response.read()
            if not self._kept or got.get("connection") == "close":
                self._close()
        except (OSError, http.client.HTTPException) as error:
            self._close()
            answers[f"{self.what} {type(error).__name__}"] += 1
            return 0, None, b""
        code = json.loads(content).get("code", "") if status >= 400 else ""
        answers[f"{self.what} {status} {code}".rstrip()] += 1
        return status, got, content

    def _close(self) -> None:
        if self._http is not None:
            self._http.close()
        self._http = None


def slowly(text: str) -> Iterable[bytes]:
    """Yield a body in pieces, over two seconds."""
    for letter in text:
        time.sleep(2 / len(text))
        yield letter.encode()


def produce(what: str, *, kept: bool, slow: bool = False) -> None:
    """Produce until shortly before the end."""
    connection = Connection(f"produce {what}", kept=kept)
    number = 0
    while time.monotonic() < END - LAST:
        number += 1
        key = f"{what}-{number}"
        named = {"x-oms-h-destination": DESTINATION, "x-oms-h-messageid": key}
        if slow:
            named["transfer-encoding"] = "chunked"
        while connection.ask("POST", "/v1/messages", named, slowly(key) if slow else key.encode())[0] != 200:
            time.sleep(0.2)
        sent.add(key)
        time.sleep(0.02)


def pull(what: str, source: str, wait: int, *, kept: bool) -> None:
    """Pull and acknowledge until the end."""
    connection = Connection(f"pull {what}", kept=kept)
    asked = {"x-oms-source": source, "x-oms-consumerid": "load", "x-oms-ack": "true", "x-oms-waitmills": str(wait)}
    while time.monotonic() < END:
        status, got, content = connection.ask("GET", "/v1/messages", asked)
        if status == 200 and got is not None:
            delivered[content.decode()] += 1
            connection.ask("POST", "/v1/ack", {"x-oms-receipt": got["x-oms-receipt"]})
        elif status != 204:
            time.sleep(0.2)


def stream(source: str) -> None:
    """Read streams, and acknowledge what they bring, until the end; each is to say why it ends."""
    connection = Connection("ack of a stream", kept=True)
    asked = HEADERS | {
        "x-oms-source": source,
        "x-oms-consumerid": "load",
        "x-oms-ack": "true",
        "x-oms-waitmills": "5000",
    }
    while time.monotonic() < END:
        end = "cut off"
        try:
            http_stream = http.client.HTTPConnection(URL.netloc, timeout=70)
            http_stream.request("GET", "/v1/push", headers=asked | {"accept": "application/x-ndjson"})
            response = http_stream.getresponse()
            for line in response if response.status == 200 else ():
                said = json.loads(line) if line.strip() else {}
                if "receipt" in said:
                    delivered[base64.b64decode(said["data"]).decode()] += 1
                    connection.ask("POST", "/v1/ack", {"x-oms-receipt": said["receipt"]})
                end = said.get("end", end)
            http_stream.close()
        except (OSError, http.client.HTTPException) as error:
            end = type(error).__name__
            time.sleep(0.2)
        answers[f"stream {end}"] += 1


def main() -> None:
    """Run all clients, and print."""
    clients = [
        threading.Thread(target=produce, args=("kept",), kwargs={"kept": True}),
        threading.Thread(target=produce, args=("new",), kwargs={"kept": False}),
        threading.Thread(target=produce, args=("slow",), kwargs={"kept": True, "slow": True}),
        threading.Thread(target=pull, args=("kept", DESTINATION, 5000), kwargs={"kept": True}),
        threading.Thread(target=pull, args=("new", DESTINATION, 5000), kwargs={"kept": False}),
        threading.Thread(target=stream, args=(DESTINATION,)),
        threading.Thread(target=pull, args=("idle", f"{DESTINATION}.idle", 20000), kwargs={"kept": True}),
    ]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    lost = sorted(sent - delivered.keys())
    twice = sum(count - 1 for count in delivered.values())
    print(json.dumps({"sent": len(sent), "lost": lost, "twice": twice, "answers": answers}))  # noqa: T201


if __name__ == "__main__":
    main()
