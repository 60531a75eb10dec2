"""Which fields of a message stand in headers of their own."""

from adapters.field_headers import header_fields, number_headers, text_headers
from bridge.message import FIELDS, Message


def names(rows: tuple[tuple[str, int], ...]) -> set[str]:
    assert all(f"oms_h_{field.name}" == name for name, place in rows for field in FIELDS if PLACE[field.name] == place)
    return {name.removeprefix("oms_h_") for name, _ in rows}


PLACE = {field.name: Message._fields.index(field.attribute) for field in FIELDS}


def test_texts_and_numbers_but_for_what_stands_elsewhere() -> None:
    all_texts = {field.name for field in FIELDS if field.maximum is None}
    all_numbers = {field.name for field in FIELDS if field.maximum is not None}
    assert names(text_headers(())) == all_texts
    assert names(number_headers(())) == all_numbers
    assert names(text_headers({"traceId", "priority"})) == all_texts - {"traceId"}
    assert names(number_headers({"traceId", "priority"})) == all_numbers - {"priority"}


def test_what_the_bridge_knows_better_is_not_read() -> None:
    read = {name.removeprefix("oms_h_"): value for name, value in header_fields().items()}
    assert read == {
        field.name: (PLACE[field.name], field.maximum)
        for field in FIELDS
        if field.name not in {"destination", "partition", "compression", "deliveryCount"}
    }
