"""Arbitrary messages, for every codec: whatever a client may send, and whatever a broker may hand us."""

import re
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st

from bridge.errors import Rejected
from bridge.message import FIELDS, Message
from bridge.wire.header_text import NAME_BYTES_MAX

OCTETS: Final = "application/octet-stream"

NO_NUMBERS: Final = (
    *("", "x", "one", "NaN", "true", "-1", "+1", "1.0", "1e3", "0x1", "0x10", "1_0", "1_000"),
    *(" 1", "1 ", "1 1", "1\t", "\u0661", "\u0663", "²"),
)
"""Not plain digits. The servers' tests send one of these; the table is here only."""

nasty: Final = st.sampled_from(
    (
        "",
        " ",
        "  x ",
        "\t",
        "a\r\nx-oms-h-priority: 9",
        "\0",
        "\x7f",
        "\x85",
        "%",
        "%zz",
        "%41",
        "*",
        "a*",
        "UTF-8''x",
        "ü",
        "日本",
    )
)

texts: Final = st.one_of(
    nasty, st.text(max_size=30), st.text(st.characters(min_codepoint=0, max_codepoint=127), max_size=30)
)
"""Every character except surrogates, which `text()` leaves out unless it is asked for them."""

names: Final = st.one_of(
    st.text(min_size=1, max_size=40),
    st.sampled_from(("a", "A", "OrderId", "a*", "*", "%", "%4f", " a ", "\r\n", ":", "ü" * 124, "x" * NAME_BYTES_MAX)),
    st.text(st.characters(max_codepoint=127), min_size=1, max_size=NAME_BYTES_MAX),
).filter(lambda name: len(name.encode()) <= NAME_BYTES_MAX)

visible: Final = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=30).filter(
    lambda text: text == text.strip(" ")
)

media_types: Final = st.one_of(st.sampled_from(("text/plain", "application/json; charset=utf-8")), visible).filter(
    lambda text: text != OCTETS
)

bodies: Final = st.one_of(
    st.binary(max_size=200),
    st.sampled_from((b"", b"\r\n", b"--", b"\r\n--", b"\r\n\r\n", b"--boundary", b"\r\n--boundar", b"\0\xff" * 10)),
)


def _hex(length: int) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=length, max_size=length).filter(lambda text: set(text) != {"0"})


traces: Final = st.one_of(
    st.just((None, None)),
    st.tuples(
        st.builds("00-{}-{}-01".format, _hex(32), _hex(16)),
        st.one_of(st.none(), visible),
    ),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Draw a message that every form can carry: each field absent or anywhere in its range."""
    values: dict[str, object] = {}
    for field in FIELDS:
        if field.maximum is not None:
            value = st.one_of(st.sampled_from((0, 1, field.maximum)), st.integers(0, field.maximum))
        elif field.required:
            value = texts.filter(bool)  # type: ignore[assignment]
        else:
            value = texts  # type: ignore[assignment]
        if field.name == "destination" or draw(st.booleans()):
            values[field.attribute] = draw(value)
    traceparent, tracestate = draw(traces)
    return Message(
        **values,  # type: ignore[arg-type]
        body=draw(bodies),
        properties=draw(st.dictionaries(names, texts, max_size=5)),
        content_type=draw(st.one_of(st.none(), media_types)),
        traceparent=traceparent,
        tracestate=tracestate,
    )


broken_texts: Final = st.one_of(
    texts,
    st.text(st.characters(categories=("Cs", "Cc", "Zs", "L")), max_size=20),
    st.sampled_from(("\ud800", "a\udfff", "00-" + "a" * 32 + "-" + "b" * 16 + "-01\r\n", " text/plain ", "é")),
)
"""What no client can send and a broker may still hold: half surrogate pairs too."""

odd_traceparents: Final = st.builds(
    lambda version, rest: f"{version}-{'a' * 32}-{'b' * 16}-01{rest}",
    st.sampled_from(("00", "01", "fe", "ff")),
    st.one_of(st.just(""), broken_texts, broken_texts.map("-{}".format)),
)


@st.composite
def broker_messages(draw: st.DrawFn) -> Message:
    """Draw a message as an adapter may have read it from a native record."""
    values: dict[str, object] = {}
    for field in FIELDS:
        if draw(st.booleans()):
            values[field.attribute] = draw(st.integers(-(2**70), 2**70) if field.maximum is not None else broken_texts)
    return Message(
        **{"destination": "orders", **values},  # type: ignore[arg-type]
        properties=draw(st.dictionaries(broken_texts, broken_texts, max_size=4)),
        content_type=draw(st.one_of(st.none(), broken_texts)),
        traceparent=draw(st.one_of(st.none(), broken_texts, odd_traceparents)),
        tracestate=draw(st.one_of(st.none(), broken_texts)),
    )


def says_whole(part: str, sentence: str) -> bool:
    """Whether a part stands in a sentence, between the ends of words."""
    after = r"(?!\w)" if part[-1].isalnum() else ""
    return re.search(rf"(?<!\w){re.escape(part)}{after}", sentence) is not None


def refusal(call: Callable[[], object]) -> Rejected | None:
    """Return how the call was refused, if it was; anything but a `Rejected` gets through and fails the test."""
    try:
        call()
    except Rejected as error:
        return error
    return None
