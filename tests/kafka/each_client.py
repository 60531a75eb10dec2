"""With which client library a test produces: `make test` takes the default one, `make test-all` both."""

from collections.abc import Sequence
from typing import Final

import pytest

from adapters.kafka.options import Client

CLIENTS: Final[Sequence[Client]] = ("confluent", "kafka-python")
"""The first is the default if both are installed, as here."""
_PARAMETERS: Final = [CLIENTS[0], *(pytest.param(each, marks=pytest.mark.extended) for each in CLIENTS[1:])]
EACH_CLIENT: Final = pytest.mark.parametrize("client", _PARAMETERS)
BOTH_CLIENTS: Final = pytest.mark.parametrize("client", CLIENTS)
"""For the few tests in which the client is the point: both run in `make test`."""
EACH_CLIENT_FIXTURE: Final = _PARAMETERS
"""The same for `params=` of a fixture."""
