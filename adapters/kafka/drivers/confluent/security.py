"""What librdkafka is told of the cluster and of who we are, the same on the produce and on the fetch side."""

import logging
import time
from typing import Final

from adapters.kafka.drivers.kafka_python.security import tls_context
from adapters.kafka.drivers.kafka_python.tokens import TokenProvider
from adapters.kafka.options import METADATA_AGE, REQUEST_TIMEOUT, Options, Security
from bridge.errors import BackendUnavailable

Settings = dict[str, object]
"""By librdkafka's names."""

_CRITICAL: Final = 2
"""In syslog's numbers. A less important line is written for each attempt to connect, twice a second in an outage; what
it says reaches us as an error as well, and is told once."""
_TOKEN_LIFE: Final = 30.0
"""Seconds after which librdkafka asks anew, whatever the token says of itself: whoever gives it knows how old it is."""


def settings_of(options: Options) -> Settings:
    """Return what both sides have in common."""
    return {
        "bootstrap.servers": ",".join(options.servers),
        "client.id": f"oms-bridge-{options.instance}" if options.instance else "oms-bridge",
        "socket.timeout.ms": REQUEST_TIMEOUT,
        "socket.connection.setup.timeout.ms": REQUEST_TIMEOUT,
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": METADATA_AGE,
        "allow.auto.create.topics": False,
        "log.connection.close": False,
        "log_level": _CRITICAL,
        "logger": logging.getLogger(__name__),
        **_security(options.security),
    }


def check(security: Security) -> None:
    """Say what is wrong with a file or a token, as librdkafka does not. Blocks for as long as it takes to get a token.

    Raises `CannotStart` for a file that is no certificate, and `BackendUnavailable` where there is no token.
    """
    if security.tls:
        tls_context(security)
    if security.mechanism == "OAUTHBEARER":
        try:
            TokenProvider(security).token()
        except Exception as error:  # whatever hinders: a file, the network, an answer that is none
            raise BackendUnavailable(f"There is no token for Kafka: {error}.") from error


def _security(security: Security) -> Settings:
    protocol = ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT")
    files = {
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
    }
    settings: Settings = {"security.protocol": protocol, **{name: str(path) for name, path in files.items() if path}}
    if security.mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": _Tokens(security)}
    elif security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.user,
            "sasl.password": security.password,
        }
    return settings


class _Tokens:
    """What librdkafka calls from a thread of its own when it wants a token."""

    def __init__(self, security: Security) -> None:
        self._provider = TokenProvider(security)

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a token and until when to use it, in seconds since 1970. What it raises is a failed login."""
        return self._provider.token(), time.time() + _TOKEN_LIFE
