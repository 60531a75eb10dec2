"""Lines of a body that arrives in pieces."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from bridge.wire.json_errors import decode
from bridge.wire.jsonform import decode_lines
from bridge.wire.stream_framings import RUN, Line, LineSplitter, Run

MOST = 3


@given(
    st.lists(st.sampled_from([b"\n", b" ", b"ab", b"\nabc", b"x" * 9, b"\r\n", b"a\nb\nc\n\nd\ne", b""]), max_size=30)
)
def test_the_pieces_do_not_matter(pieces: list[bytes]) -> None:
    limit, splitter = 8, LineSplitter(8, MOST)
    found: list[Run] = []
    for piece in pieces:
        found += splitter.feed(piece)
        assert splitter.size <= limit
    found += splitter.end()
    lines = enumerate(b"".join(pieces).split(b"\n"), 1)
    expected = [Line(at, None if len(text) > limit else text) for at, text in lines]
    flat = [line for run in found for line in run.lines()]
    assert flat == [line for line in expected if line.text is None or line.text.strip()]
    assert all(
        run.length == 1 if run.text is None else run.length == run.text.count(b"\n") + 1 <= MOST for run in found
    )


def test_runs_are_not_too_large() -> None:
    splitter = LineSplitter(2 * RUN, 1000)
    piece = b"x" * (RUN // 3) + b"\n"
    runs = splitter.feed(piece * 10 + b"y" * (RUN + 1) + b"\n" + piece)
    assert [run.number for run in runs] == sorted(run.number for run in runs)
    assert sum(run.length for run in runs) == 12
    assert max(len(run.text or b"") for run in runs if run.length > 1) <= RUN
    assert [line.number for run in runs for line in run.lines()] == [*range(1, 13)]


_TEXTS = (
    b'{"header":{"destination":"a"},"data":"QQ=="}',
    b'{"header":{"destination":"a","messageId":"\\"\\\\"},"properties":{"k":"v"}}',
    b'{"header":{"destination":"a}',
    b'{"}}',
    b'{"header":{"destination":"a","destination":"b"}}',
    b'{"header":{"destination":"a"}}{"header":{"destination":"b"}}',
    b'{"header":{"destination":"a"},',
    b'"data":""}',
    b"{}",
    b"}",
    b"{",
    b"",
)


@given(st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=5))
@example([_TEXTS[5], *_TEXTS[6:8]])
def test_lines_that_are_decoded_at_once_are_those_that_are_decoded_alone(texts: list[bytes]) -> None:
    """What is only valid together, such as a message on two lines, is not decoded at once."""
    messages = decode_lines(b"\n".join(texts), len(texts))
    if messages is not None:
        assert messages == [decode(json.loads(text)) for text in texts]
        assert not any(b'"destination":"b"' in text for text in texts), "a repeated member is refused"


def test_valid_lines_are_decoded_at_once() -> None:
    assert decode_lines(b"\n".join(_TEXTS[:2] * 50), 100) is not None
