"""What became of one POST: an answer, or one of two reasons why there is none."""

from typing import NamedTuple


class Answer(NamedTuple):
    """What the endpoint said; its body is read and dropped."""

    status: int
    """200 to 599; a redirect is an answer like any other and is not followed."""
    retry_after: str | None
    """The header as it came, seconds or a date (RFC 9110 10.2.3)."""


class NotAnswered(Exception):
    """Base of both reasons; its text is one sentence for the log, without the URL's path and query."""


class Refused(NotAnswered):
    """The guard said no. Nothing was sent, no connection was opened."""


class Unreachable(NotAnswered):
    """No whole answer: name, connection, TLS, protocol or time. The endpoint may or may not have seen the message."""
