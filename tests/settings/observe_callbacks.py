"""What an endpoint and a client see of `callbacks`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from standardwebhooks import Webhook

from tests.http.callback_endpoint import OK, Answer, Posted
from tests.settings.bridge_client import PATIENCE, BridgeClient, code, fresh, wait_until
from tests.settings.comparison import Observe

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of these tests
FROM_FILE = "whsec_ZmlsZWZpbGVmaWxlZmlsZWZpbGVmaWxl"


def target(client: BridgeClient) -> object:
    """Register an endpoint."""
    return code(client.register(fresh(), client.resources.endpoint.url("/target")))


def network(client: BridgeClient) -> object:
    """Register an endpoint on loopback, and see whether it is refused or a message is posted to it."""
    source = fresh()
    response = client.register(source, client.resources.endpoint.url("/network"))
    if "callbacks.networks" in response.text:
        return "refused"
    client.store(source)
    wait_until(lambda: client.registration(source)["delivered"], "it is delivered")
    return "delivered"


def signature(secret: str) -> Observe:
    """Return a function that checks whether a POST is signed with that secret."""

    def observe(client: BridgeClient) -> object:
        source = fresh()
        client.register(source, client.resources.endpoint.url(f"/{source}"))
        client.store(source, b"{}")
        (posted,) = client.resources.endpoint.wait_for(f"/{source}", 1)
        Webhook(secret).verify(posted.body, dict(posted.headers))  # raises
        return "signed"

    return observe


@contextmanager
def _unanswered(client: BridgeClient) -> Iterator[str]:
    """Yield a destination whose endpoint, at the path of that name, answers no POST until the end."""
    source, answer = fresh(), threading.Event()

    def hold(_: Posted) -> Answer:
        answer.wait(PATIENCE)
        return OK

    client.resources.endpoint.scripts[f"/{source}"] = hold
    try:
        yield source
    finally:
        answer.set()


def at_once(client: BridgeClient) -> object:
    """Register for ten POSTs at once; count how many arrive while none is answered."""
    with _unanswered(client) as source:
        shown = client.register(source, client.resources.endpoint.url(f"/{source}"), credit=10).json()
        for _ in range(12):
            client.store(source)
        client.resources.endpoint.wait_for(f"/{source}", shown["credit"])
        wait_until(lambda: client.registration(source)["inFlight"] == shown["credit"], "as many as are allowed")
        return len(client.resources.endpoint.to(f"/{source}"))


def timeout(client: BridgeClient) -> object:
    """Give no answer, and read the failure."""
    with _unanswered(client) as source:
        client.register(source, client.resources.endpoint.url(f"/{source}"))
        client.store(source)
        wait_until(lambda: client.registration(source)["failures"], "it fails")
        return str(client.registration(source)["failures"][0]["reason"]).partition(
            f"{client.resources.endpoint.port} "
        )[2]


def authority(client: BridgeClient) -> object:
    """Register an endpoint behind TLS."""
    source = fresh()
    url = f"https://localhost:{client.resources.secure.port}/{source}"
    assert client.register(source, url).status_code < 300
    client.store(source)

    def known() -> int:
        shown = client.registration(source)
        return int(shown["delivered"]) + int(shown["failed"])

    wait_until(known, "it is delivered, or it fails")
    return "delivered" if client.registration(source)["delivered"] else "not trusted"
