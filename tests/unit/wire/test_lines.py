"""Lines of a body that arrives in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.lines import Line, LineSplitter


@given(st.lists(st.sampled_from([b"\n", b" ", b"ab", b"\nabc", b"x" * 9, b"\r\n", b""]), max_size=30))
def test_the_pieces_do_not_matter(pieces: list[bytes]) -> None:
    limit, splitter = 8, LineSplitter(8)
    found: list[Line] = []
    for piece in pieces:
        found += splitter.feed(piece)
        assert splitter.size <= limit
    found += splitter.end()
    lines = enumerate(b"".join(pieces).split(b"\n"), 1)
    expected = [Line(at, None if len(text) > limit else text) for at, text in lines]
    assert found == [line for line in expected if line.text is None or line.text.strip()]
