"""Which paths contain a destination, and what they contain."""

import pytest

from bridge.errors import HeaderInvalid
from bridge.http.params import DESTINATION_MESSAGE, DESTINATION_MESSAGES, path_values, template_of

TEMPLATES = {
    "/v1/destinations/orders/messages": DESTINATION_MESSAGES,
    "/v1/destinations/messages/messages": DESTINATION_MESSAGES,
    "/v1/destinations/orders/messages/order-7": DESTINATION_MESSAGE,
    "/v1/destinations/orders/messages/messages": DESTINATION_MESSAGE,
}
OTHERS = (
    *("/v1/messages", "/v1/destinations", "/v1/destinations/", "/v1/destinations/orders", "/v1/destinations//messages"),
    *("/v1/destinations/orders/messages/", "/v1/destinations/orders/messages/a/b", "/v1/destinations/orders/message"),
    *("//v1/destinations/orders/messages", "/v1/destinations/orders//messages", "/V1/destinations/orders/messages"),
)


def test_templates(subtests: pytest.Subtests) -> None:
    for path, template in (TEMPLATES | {path: path for path in OTHERS}).items():
        with subtests.test(path):
            assert template_of(path) == template


def test_values(subtests: pytest.Subtests) -> None:
    cases = {
        "orders/messages": ("orders", None),
        "messages/messages": ("messages", None),
        "orders/messages/order-7": ("orders", "order-7"),
        "orders/messages/messages": ("orders", "messages"),
        "orders/messages/a%2Fb%20+c": ("orders", "a/b +c"),
        "orders/messages/Z%C3%BCrich": ("orders", "Zürich"),
        "a%2Fb/messages": ("a%2Fb", None),
    }
    for path, values in cases.items():
        with subtests.test(path):
            assert path_values(f"/v1/destinations/{path}") == values


def test_an_id_that_is_no_text_is_refused(subtests: pytest.Subtests) -> None:
    for raw in ("%ff", "%", "%4", "%zz", "\xff"):
        with subtests.test(raw), pytest.raises(HeaderInvalid, match=r"^messageId: "):
            path_values(f"/v1/destinations/orders/messages/{raw}")
