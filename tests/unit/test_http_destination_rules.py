"""The rules of destinations, built from the settings: what stops the start."""

from pathlib import Path

import pytest

from bridge.http.incoming_webhook_rules import DestinationRules
from bridge.parts_from_settings import destination_rules
from bridge.settings import SettingsError, load
from bridge.wire.headers import parse


def test_without_settings_there_are_no_rules() -> None:
    assert destination_rules(load(None, {}, {})) == {}


def test_a_name_or_a_secret_that_cannot_be_stops_the_start(tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    verify = "{{orders: {{verify: {{scheme: {}, secret_file: {}}}}}}}"
    cases = {
        "{a/b: {}}": "destinations.a/b: the name: 'a/b' has a character other than A-Z",
        "{amq.topic: {}}": "destinations.amq.topic: the name: names that start with __, amq., oms. are internal.",
        verify.format("standard-webhooks", tmp_path / "secret"): "destinations.orders: secret 1 does not begin with",
        verify.format("github", tmp_path / "empty"): "destinations.orders: the file has no secret.",
        verify.format("github", tmp_path / "binary"): "destinations.orders: the file is not text in UTF-8.",
    }
    config = tmp_path / "bridge.yaml"
    for text, sentence in cases.items():
        with subtests.test(sentence):
            config.write_text(f"destinations: {text}\n")
            with pytest.raises(SettingsError) as failure:
                destination_rules(load(config, {}, {}))
            assert str(failure.value).startswith(sentence)
            assert "hunter2" not in str(failure.value)


def test_a_header_becomes_a_property_whatever_its_bytes_are(subtests: pytest.Subtests) -> None:
    rules = DestinationRules.create("orders", ["x-city"], None)
    cases = {
        b"Bern": "Bern",
        b"Z\xc3\xbcrich": "Z\u00fcrich",
        b"Z\xfcrich": "Z\u00fcrich",
        b"\xc3": "\u00c3",
        b"\xff\xfe": "\u00ff\u00fe",
        b"a\tb": "a\tb",
        b"": "",
    }
    for raw, text in cases.items():
        with subtests.test(raw=raw):
            assert rules.apply(parse([(b"x-city", raw)]), b"", 0).properties == {"x-city": text}
