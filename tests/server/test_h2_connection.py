"""The header fields of responses: any HPACK decoder reads them."""

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from bridge.server.hypercorn.h2_connection import NonIndexingEncoder

FIELD = st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=20_000))


@given(st.lists(st.lists(FIELD, max_size=8), max_size=4))
def test_any_decoder_reads_what_is_written(blocks: list[list[tuple[bytes, bytes]]]) -> None:
    encoder, decoder = NonIndexingEncoder(), Decoder(max_header_list_size=1 << 30)
    for block in blocks:
        assert decoder.decode(encoder.encode(block), raw=True) == block


def test_every_status_is_read_as_it_was_written(subtests: pytest.Subtests) -> None:
    for status in (b"200", b"204", b"207", b"400", b"404", b"410", b"500", b"503"):
        with subtests.test(status.decode()):
            block = [(b":status", status), (b"x-oms-version", b"1.0.0")]
            assert Decoder().decode(NonIndexingEncoder().encode(block), raw=True) == block


def test_a_length_at_the_edge_of_its_prefix_is_read(subtests: pytest.Subtests) -> None:
    for length in (126, 127, 128, 254, 255, 16_510):
        with subtests.test(str(length)):
            block = [(b"n" * length, b"v" * length)]
            assert Decoder(max_header_list_size=1 << 20).decode(NonIndexingEncoder().encode(block), raw=True) == block


def test_a_table_that_the_client_made_smaller_is_announced() -> None:
    encoder, decoder = NonIndexingEncoder(), Decoder()
    decoder.max_allowed_table_size = 0
    encoder.header_table_size = 0
    block = [(b":status", b"200"), (b"a", b"b")]
    assert decoder.decode(encoder.encode(block), raw=True) == block
    assert decoder.decode(encoder.encode(block), raw=True) == block


def test_nothing_is_added_to_the_dynamic_table() -> None:
    encoder, decoder = NonIndexingEncoder(), Decoder()
    decoder.decode(encoder.encode([(b"x-oms-h-messageid", b"1")]), raw=True)
    assert not decoder.header_table.dynamic_entries
