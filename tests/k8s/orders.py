"""The application of `helm/examples/orders` in the tests: it produces and pulls, also after its own SIGTERM.

With `nightly` it does so five times and ends.
"""

import http.client
import os
import signal
import sys
import time
import urllib.parse

BRIDGE = urllib.parse.urlsplit(os.environ["MESSAGES"]).netloc
LAST = 5
"""Messages that it produces after SIGTERM, a second apart."""
ending = False


def end(*_: object) -> None:
    """End soon."""
    global ending  # noqa: PLW0603 - of a signal's handler
    ending = True


def ask(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, http.client.HTTPMessage]:
    """Return status and headers of the bridge's response; OSError if it does not answer."""
    connection = http.client.HTTPConnection(BRIDGE, timeout=40)
    connection.request(method, path, body, {"x-oms-version": "1.0.0", **headers})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers


def produce(text: str) -> int:
    """Return the status of a produce."""
    return ask("POST", "/v1/messages", {"x-oms-h-destination": "orders"}, text.encode())[0]


def main() -> None:
    """Say how each request ended."""
    signal.signal(signal.SIGTERM, end)
    rounds = 5 if sys.argv[1:] == ["nightly"] else 1 << 30
    pull = {"x-oms-source": "orders", "x-oms-consumerid": "app", "x-oms-ack": "true", "x-oms-waitmills": "5000"}
    for number in range(rounds):
        if ending:
            break
        produced = produce(f"order {number}")
        status, got = ask("GET", "/v1/messages", pull)
        settled = ask("POST", "/v1/ack", {"x-oms-receipt": got["x-oms-receipt"]})[0] if status == 200 else 0
        print("order", number, produced, status, settled, flush=True)  # noqa: T201
        time.sleep(1)
    for number in range(LAST if ending else 0):
        print("last", number, produce(f"last {number}"), flush=True)  # noqa: T201
        time.sleep(1)


if __name__ == "__main__":
    main()
