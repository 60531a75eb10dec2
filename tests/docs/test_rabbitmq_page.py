"""The page about RabbitMQ: its tables are those of the code, its sentences about mistakes are the real ones."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from adapters.amqp.field_tables import SHORT_MAX
from adapters.amqp.settings import Security
from adapters.field_headers import BROKER_FIELD_PREFIX, PROPERTY_PREFIX
from adapters.native_headers import HEADERS_DROPPED, HEADERS_MAX
from adapters.rabbitmq import connect
from adapters.rabbitmq.consume.assigned import REFRESH
from adapters.rabbitmq.consume.prefetch_window import GROUP_BYTES, PARTITION_BYTES
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.levels import APART
from adapters.rabbitmq.headers import (
    BROKERS,
    COMPRESSION,
    CONTENT_TYPE,
    CORRELATION_ID,
    MESSAGE_ID,
    NATIVE,
    NATIVE_PREFIX,
    NUMBERS,
    TEXTS,
)
from adapters.rabbitmq.options import _PORTS, _READERS, Existing, Options, parse, read_existing
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.names import RESERVED, Own
from bridge.message import FIELDS
from bridge.settings.model import Settings
from tests.docs.page import Page, check_bounds, check_defaults

_PAGE: Final = Page("rabbitmq.md")
PAGE: Final = _PAGE.text
DEFAULTS: Final = Options._field_defaults | Security._field_defaults
section, table = _PAGE.section, _PAGE.table
OPTIONS: Final = {row[0].strip("`"): row for row in table("Options")}
SECURITY: Final = [name for row in table("Security") for name in re.findall(r"`(\w+)`", row[0])]
OWN: Final = Own(str(DEFAULTS["prefix"]))


def test_every_option_has_its_row() -> None:
    assert sorted([*OPTIONS, *SECURITY]) == sorted(_READERS)


def test_the_default_is_the_one_shown(subtests: pytest.Subtests) -> None:
    check_defaults(OPTIONS, DEFAULTS, {"no name": None, "no file": {}}, subtests)


def test_numbers_are_allowed_within_the_bounds_shown(subtests: pytest.Subtests) -> None:
    check_bounds(OPTIONS, "amqp://localhost", parse, subtests)


def test_switches_are_allowed_as_shown(subtests: pytest.Subtests) -> None:
    found = [name for name, row in OPTIONS.items() if row[2] == "true, false"]
    assert found
    for name in found:
        with subtests.test(name=name):
            for word, value in (("true", True), ("false", False)):
                assert getattr(parse(f"amqp://localhost?{name}={word}"), name) is value
            with pytest.raises(ValueError, match="true or false"):
                parse(f"amqp://localhost?{name}=neither")


def test_the_sentence_about_an_unknown_option_names_those_of_the_page() -> None:
    with pytest.raises(ValueError, match="did you mean") as raised:
        parse("amqp://localhost?partition=3")
    assert {*OPTIONS, *SECURITY} <= set(re.findall(r"\w+", str(raised.value)))


def test_the_examples_of_urls_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a line")
    (block,) = re.findall(r"```sh\n(.*?)```", section("Security"), re.DOTALL)
    read = [parse(re.sub(r"=/[\w./-]+", f"={file}", url)) for url in block.split()]
    assert {options.security.external for options in read} == {True, False}
    for options in read:
        assert options.security.tls
        assert options.vhost == "shop"
        assert options.servers == (("rabbit", _PORTS["amqps://"]),)
    assert f"(port {_PORTS['amqps://']})" in section("Security")
    (shown,) = set(re.findall(r"--backend '([^']*)'", PAGE))
    assert parse(shown).servers == (("rabbit-1", _PORTS["amqp://"]), ("rabbit-2", _PORTS["amqp://"]))


def test_what_it_honours_is_what_the_adapter_declares() -> None:
    shown = {name: row[1].partition(":")[0] for row in table("What it honours") for name in row[0].split(", ")}
    features = connect("amqp://localhost").features
    assert shown == {name: support.value for name, support in features.fields.items()}
    assert (features.durable, features.late_groups, features.shared_groups) == (True, True, True)
    assert not connect("amqp://localhost?log=false").features.late_groups


def test_the_names_are_those_of_the_code() -> None:
    shown = {name for row in table("Topology") for name in re.findall(r"`([^`]+)`", row[0])}
    of = "<destination>"
    of_groups = (names.queue(of, "<group>", 3), names.attempts(of, "<group>", 3), names.history(of, "<group>", 3))
    groups = {*(name.replace("3", "<i>") for name in of_groups), names.setup(of, "<group>")}
    groups |= {names.returned(of, "<group>"), names.witness(of, "<group>", 3).replace("3", "<n>")}
    ends = {OWN.delay(levels.LEVELS - 1), OWN.delay(0)}
    relay = OWN.relay("", "").rpartition(".")[0] + ".<hash>"
    own = {OWN.catalogue, OWN.bridges, OWN.deliver, OWN.lost, OWN.dropped, relay, f"{OWN.bridges}.<hash>.<n>", *ends}
    own |= {OWN.transactions, f"{OWN.transactions}.setup"}
    assert shown == {of, names.log(of), names.parts(of), names.rest(of), f"{of}.dlq", *groups, *own}
    assert f"must not end in {', '.join(f'`{end}`' for end in RESERVED[:-1])} or `{RESERVED[-1]}`" in PAGE


def test_the_picture_has_the_bindings_of_the_code() -> None:
    (picture,) = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
    way_out = levels.deliver_to_exchange(OWN, "orders")
    assert f'{{{{"{way_out.arguments["source"]} (topic)"}}}}' in picture
    assert way_out.arguments["routing_key"] == f"{'*.' * levels.LEVELS}orders.*"
    assert '-- "*.….*.orders.*" --> orders' in picture
    for name in names.log("orders"), names.parts("orders"), names.rest("orders"), OWN.lost:
        assert name in picture
    for group in "billing", "audit":
        *partitions, rest = (step.arguments for step in declarations.group_bindings("orders", group, 2))
        for number, bound in enumerate(partitions):
            node = f"{group[0]}{number}"
            assert f'parts -- "{bound["routing_key"]}" --> {node}["{bound["queue"]}"]' in picture
        assert (rest["exchange"], rest["queue"]) == (names.rest("orders"), names.queue("orders", group, 0))
        assert f"rest --> {group[0]}0\n" in picture


def test_the_delay_levels_are_those_of_the_code() -> None:
    said = section("Delays")
    highest = levels.LEVELS - 1
    waits = f"`{OWN.delay(0)}` keeps it {levels.UNIT} ms, `{OWN.delay(1)}` {2 * levels.UNIT} ms"
    assert f"{waits}, up to `{OWN.delay(highest)}`, {(levels.UNIT << highest) // 86_400_000} days" in said
    assert f"up to {levels.UNIT + APART} ms early" in said
    assert f"{levels.LOST_MESSAGES:,} messages or {levels.LOST_BYTES >> 20} MiB" in said


def test_the_file_of_destinations_can_be_read(tmp_path: Path) -> None:
    blocks = [
        re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) for text in (PAGE, Page("migrate-from-rabbitmq.md").text)
    ]
    assert [len(found) for found in blocks] == [1, 1]
    for [block] in blocks:
        file = tmp_path / "destinations.yaml"
        file.write_text(block)
        read = read_existing(str(file))
        assert read == {name: Existing(**said) for name, said in yaml.safe_load(block).items()}
        assert parse(f"amqp://localhost?destinations={file}").destinations == read
    assert [row[0].strip("`") for row in table("Names that exist already")] == list(Existing._fields)


def test_the_table_of_fields_is_that_of_the_headers() -> None:
    rows = table("What a message becomes")
    (shown,) = (row[0].split(", ") for row in rows if row[1].startswith(f"headers `{BROKER_FIELD_PREFIX}"))
    written = [name for name, _ in (*TEXTS, *NUMBERS)]
    assert sorted(shown) == sorted(
        name.removeprefix(BROKER_FIELD_PREFIX) for name in written if name.startswith(BROKER_FIELD_PREFIX)
    )
    assert ", ".join(name for name in written if not name.startswith(BROKER_FIELD_PREFIX)) in [row[0] for row in rows]
    assert {field.name for field in FIELDS} <= {name for row in rows for name in row[0].split(", ")}
    for name in MESSAGE_ID, CORRELATION_ID, CONTENT_TYPE, COMPRESSION, f"{PROPERTY_PREFIX}region":
        assert f"`{name}`" in section("What a message becomes")
    assert f"longer than {SHORT_MAX} bytes" in PAGE


def test_the_table_of_native_messages_is_that_of_the_code() -> None:
    rows = {row[0]: row[1] for row in table("What a native message becomes")}
    assert rows[", ".join(f"`{name}`" for name in NATIVE)] == f"properties `{NATIVE_PREFIX}{NATIVE[0]}`, …"
    brokers = next(left for left in rows if left.startswith("what RabbitMQ itself notes: "))
    noted = {name for name in re.findall(r"`(x-[^`]+)`", brokers) if not name.endswith("…")}
    starts = tuple(name.rstrip("…") for name in re.findall(r"`(x-[^`]+…)`", brokers))
    assert noted == {name for name in BROKERS if not name.startswith(starts)}
    assert {name for name in BROKERS if name.startswith(starts)} == BROKERS - noted
    assert f"more than {HEADERS_MAX >> 10} KiB of headers" in PAGE
    assert f"`{HEADERS_DROPPED}`" in PAGE


def test_the_bounds_are_those_of_the_code() -> None:
    bytes_ = f"at most {GROUP_BYTES >> 20} MiB of a group, and {PARTITION_BYTES >> 20} MiB of a partition"
    assert f"{bytes_} in any case" in PAGE
    assert f"for at least {REFRESH / 60:.0f} minutes" in section("Limits")
    settings = Settings()
    assert f"`limits.prefetch` ({settings.limits.prefetch})" in PAGE
    assert f"`prefetch` ({DEFAULTS['prefetch']})" in PAGE
