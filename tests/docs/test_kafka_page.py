"""The page about Kafka: its tables are those of the code, its sentences about mistakes are the real ones."""

import re
from pathlib import Path
from typing import Final

import pytest

from adapters.field_headers import BROKER_FIELD_PREFIX, PROPERTY_PREFIX
from adapters.kafka.adapter import KafkaAdapter
from adapters.kafka.consume import commit_metadata
from adapters.kafka.consume.settled_ranges import SPAN_MAX
from adapters.kafka.delay.schedule import LEVELS
from adapters.kafka.mapping import NUMBERS, TEXTS
from adapters.kafka.names import HIGH, LANES, LOW, Own
from adapters.kafka.options import _READERS, UNSENT_TIMEOUT, Options, Security, parse
from adapters.native_headers import HEADERS_DROPPED, HEADERS_MAX, KEY_MAX
from bridge.message import FIELDS
from bridge.settings.model import Settings
from tests.docs.page import Page, check_bounds, check_defaults

_PAGE: Final = Page("kafka.md")
PAGE: Final = _PAGE.text
DEFAULTS: Final = Options._field_defaults | Security._field_defaults
section, table = _PAGE.section, _PAGE.table
OPTIONS: Final = {row[0].strip("`"): row for row in table("Options")}
SECURITY: Final = [name for row in table("Security") for name in re.findall(r"`(\w+)`", row[0])]


def test_every_option_has_its_row() -> None:
    assert sorted([*OPTIONS, *SECURITY]) == sorted(_READERS)


def test_the_default_is_the_one_shown(subtests: pytest.Subtests) -> None:
    words = {"no name": None, "kafka-python": None, "as the brokers are configured": -1}
    check_defaults(OPTIONS, DEFAULTS, words, subtests)


def test_numbers_are_allowed_within_the_bounds_shown(subtests: pytest.Subtests) -> None:
    check_bounds(OPTIONS, "kafka://a:1", parse, subtests)


def test_words_are_allowed_as_shown(subtests: pytest.Subtests) -> None:
    found = [item for item in OPTIONS.items() if ", " in item[1][2]]
    assert len(found) > 2
    for name, row in found:
        with subtests.test(name=name, row=row):
            for word in row[2].replace(", ms", "").split(", "):
                if " to " not in word:
                    parse(f"kafka://a:1?{name}={word}")
            with pytest.raises(ValueError, match=name):
                parse(f"kafka://a:1?{name}=neither")


def test_the_sentence_about_an_unknown_option_names_those_of_the_page() -> None:
    with pytest.raises(ValueError, match="did you mean") as raised:
        parse("kafka://a:1?partition=3")
    assert {*OPTIONS, *SECURITY} <= set(re.findall(r"\w+", str(raised.value)))


def test_the_example_of_the_start_can_be_read() -> None:
    (shown,) = set(re.findall(r"--backend '([^']*)'", PAGE))
    assert parse(shown).replication == 3


def test_the_examples_of_security_can_be_read(tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", section("Security"), re.DOTALL)
    urls = [line.split()[0] for line in block.splitlines()]
    file = tmp_path / "file"
    file.write_text("a line")
    read = [parse(re.sub(r"=/[\w./-]+", f"={file}", url)).security for url in urls]
    assert {security.mechanism for security in read} == {None, "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"}
    assert all(security.tls for security in read)
    mechanisms = next(row[1] for row in table("Security") if row[0] == "`mechanism`")
    for mechanism in mechanisms.split(", "):
        more = f"token_file={file}" if mechanism == "OAUTHBEARER" else f"user=a&password_file={file}"
        assert parse(f"kafka://a:1?mechanism={mechanism}&{more}").security.mechanism == mechanism


def test_what_it_honours_is_what_the_adapter_declares() -> None:
    shown = {name: row[1].partition(":")[0] for row in table("What it honours") for name in row[0].split(", ")}
    assert shown == {name: support.value for name, support in KafkaAdapter.features.fields.items()}
    assert KafkaAdapter.features.durable
    assert KafkaAdapter.features.late_groups


def test_the_topics_are_named_as_the_code_names_them() -> None:
    own = Own(str(DEFAULTS["prefix"]))
    named = section("Topics")
    levels = "|".join(
        re.findall(r"`(?:oms\.delay)?\.(\w+)`", next(row[0] for row in table("Topics") if "delay" in row[0]))
    )
    assert set(levels.split("|")) == {level.name for level in LEVELS}
    assert own.delay("1s") in named
    assert own.notes in named
    assert own.transactions in named
    assert f"`{own.forwarders}`" in PAGE
    assert {f"`<destination>{lane}`" for lane in LANES} <= set(re.findall(r"`[^`]+`", named))
    assert f"`orders{HIGH}` above, `orders{LOW}` below" in PAGE


def test_the_table_of_fields_is_that_of_the_headers() -> None:
    rows = table("What a message becomes")
    headers = next(row[0] for row in rows if BROKER_FIELD_PREFIX in row[1] and "messageId" in row[0])
    written = [
        name.removeprefix(BROKER_FIELD_PREFIX) for name, _ in (*TEXTS, *NUMBERS) if name.startswith(BROKER_FIELD_PREFIX)
    ]
    assert sorted(headers.split(", ")) == sorted(written)
    elsewhere = {field.name for field in FIELDS} - set(written) - {"compression"}
    assert elsewhere == {row[0] for row in rows} & {field.name for field in FIELDS}
    assert f"`{PROPERTY_PREFIX}region`" in section("What a message becomes")
    plain = [name for name, _ in TEXTS if not name.startswith(BROKER_FIELD_PREFIX)]
    assert ", ".join(plain) in [row[0] for row in rows]


def test_the_bounds_are_those_of_the_code() -> None:
    settings = Settings()
    assert f"more than {KEY_MAX} bytes" in PAGE
    assert f"more than {HEADERS_MAX >> 10} KiB of headers" in PAGE
    assert f"`{HEADERS_DROPPED}`" in PAGE
    assert f"{commit_metadata.CHARACTERS_MAX:,} characters" in PAGE
    assert f"{SPAN_MAX:,} offsets" in PAGE
    assert f"not sent within {UNSENT_TIMEOUT // 1000} s" in PAGE
    assert f"`delivery.group_idle` ({settings.delivery.group_idle // 60_000} minutes)" in PAGE
    assert f"`limits.prefetch` ({settings.limits.prefetch})" in PAGE


def test_the_marks_shown_are_marks() -> None:
    (shown,) = re.findall(r"`(oms1:[^`]*)`", PAGE)
    settled, attempts = commit_metadata.decode(shown, 3)
    assert list(settled)
    assert attempts
    assert commit_metadata.encode(3, settled, attempts) == shown
