import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from bridge.settings import Address, LimitsSettings, Settings, SettingsError, list_settings, load, read_secrets, redact

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
SECRET = "hunter2"  # noqa: S105 - the canary that no sentence may show


def refused(
    environ: Mapping[str, str], config: Path | None = None, overrides: Mapping[str, object] | None = None
) -> str:
    """Load what must not load; return the sentence, with the file's name shortened."""
    with pytest.raises(SettingsError) as failure:
        load(config, overrides or {}, environ)
    sentence = str(failure.value)
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence
    assert SECRET not in sentence
    return sentence.replace(f"{config}", "FILE")


def test_the_defaults_are_those_of_the_design() -> None:
    settings = load(None, {}, {})
    assert settings.backend == "memory://"
    assert settings.listen == Address("127.0.0.1", 8080)
    assert settings.limits.body == 4 * 1024 * 1024
    assert settings.tls is None
    assert settings == Settings()


def test_the_command_line_wins_over_the_environment_and_the_environment_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "bridge.yaml"
    config.write_text("backend: a://file\nlog: {level: debug}\nlimits: {body: 1KiB, batch: 7, prefetch: 7}\ndrain: 1\n")
    environ = {"OMS_LIMITS__BODY": "2KiB", "OMS_LIMITS__PREFETCH": "8", "OMS_BACKEND": "a://variable"}
    settings = load(config, {"backend": "a://option", "limits": {"prefetch": 9}}, environ)
    assert settings.backend == "a://option"
    assert (settings.limits.body, settings.limits.batch, settings.limits.prefetch) == (2048, 7, 9)
    assert (settings.drain, settings.log.level) == (1, "debug")


def test_a_variable_may_name_the_file_and_the_option_wins(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"backend: {name}://\n")
    environ = {"OMS_CONFIG": str(tmp_path / "a")}
    assert load(None, {}, environ).backend == "a://"
    assert load(tmp_path / "b", {}, environ).backend == "b://"


def test_an_empty_file_is_no_mistake(tmp_path: Path) -> None:
    config = tmp_path / "bridge.yaml"
    config.write_text("# nothing yet\n")
    assert load(config, {}, {}) == Settings()


def test_settings_built_directly_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OMS_BACKEND", "kafka://machine")
    assert Settings().backend == "memory://"
    assert load(None, {}, {}).backend == "memory://"
    assert Settings(limits=LimitsSettings(body=5)).limits.body == 5


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.drain = 5
    with pytest.raises(ValueError, match="frozen"):
        settings.limits.body = 5


def test_addresses(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, tuple[str, int], str]] = [
        ("127.0.0.1:8080", ("127.0.0.1", 8080), "127.0.0.1:8080"),
        ("[::1]:8080", ("::1", 8080), "[::1]:8080"),
        ("[0:0::1]:0", ("::1", 0), "[::1]:0"),
        ("localhost:65535", ("localhost", 65535), "localhost:65535"),
    ]
    for text, address, shown in cases:
        with subtests.test(text=text, address=address, shown=shown):
            listen = load(None, {}, {"OMS_LISTEN": text}).listen
            assert listen == address
            assert str(listen) == shown


def test_invalid_addresses(subtests: pytest.Subtests) -> None:
    for text in ("8080", ":8080", "::1:8080", "[::1]", "[zz]:1", "a b:1", "a:", "a:-1", "a:²", "a:65536"):
        with subtests.test(text=text):
            sentence = refused({"OMS_LISTEN": text})
            assert sentence.startswith(
                ("OMS_LISTEN: host:port is expected", "OMS_LISTEN: the port after the last colon is")
            )


def test_both_ports_may_be_any() -> None:
    environ = {"OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0"}
    assert load(None, {}, environ).listen == load(None, {}, environ).management


def test_lists_are_separated_by_commas_in_variables_and_lower_case_afterwards(tmp_path: Path) -> None:
    config = tmp_path / "bridge.yaml"
    config.write_text("http: {hosts: [Bridge.shop.svc], origins: ['https://Shop.example:444']}\n")
    assert load(config, {}, {}).http.hosts == ("bridge.shop.svc",)
    assert load(config, {}, {}).http.origins == ("https://shop.example:444",)
    assert load(config, {}, {"OMS_HTTP__HOSTS": "a, B,*"}).http.hosts == ("a", "b", "*")


def test_invalid_origins(subtests: pytest.Subtests) -> None:
    for origin in ("*", "null", "shop.example", "https://shop.example/", "ftp://shop.example"):
        with subtests.test(origin=origin):
            assert refused({"OMS_HTTP__ORIGINS": origin}).startswith("OMS_HTTP__ORIGINS: each is scheme://host[:port]")


def test_sizes(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, int]] = [("1", 1), ("64 KiB", 65536), ("1MB", 1_000_000), ("1GiB", 1 << 30)]
    cases += [("1.5MiB", 3 << 19), (".5 kib", 512), ("4M", 4_000_000), ("1024.0", 1024), ("1_024", 1024)]
    for text, size in cases:
        with subtests.test(text=text, size=size):
            settings = load(
                None,
                {},
                {
                    "OMS_LIMITS__BODY": text,
                    "OMS_LIMITS__IN_FLIGHT_BYTES": "2GiB",
                    "OMS_LIMITS__MEMORY": "2GiB",
                },
            )
            assert settings.limits.body == size


def test_a_wrong_variable_stops_the_start(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("OMS_LIMITS__BODI", "1", "OMS_LIMITS__BODI is not a setting; did you mean OMS_LIMITS__BODY?"),
        ("OMS_LIMITS_BODY", "1", "OMS_LIMITS_BODY is not a setting; did you mean OMS_LIMITS__BODY?"),
        ("OMS_Backend", "x://", "OMS_Backend is not a setting; did you mean OMS_BACKEND?"),
        ("OMS_CONFG", "x", "OMS_CONFG is not a setting; did you mean OMS_CONFIG?"),
        ("OMS_ZZZ", "x", "OMS_ZZZ is not a setting; docs/configuration.md lists all settings."),
        ("OMS_LISTEN__PORT__X", "1", "OMS_LISTEN__PORT__X is not a setting; did you mean OMS_LISTEN?"),
        ("OMS_PORT", "1", "OMS_PORT is not a setting; did you mean OMS_LISTEN?"),
        ("OMS_BACKEND", " ", "OMS_BACKEND is empty; give it a value or remove it."),
        ("OMS_LIMITS__BATCH", "0", "OMS_LIMITS__BATCH must be a whole number from 1 to 100000."),
        ("OMS_LIMITS__BATCH", "1.5", "OMS_LIMITS__BATCH must be a whole number from 1 to 100000."),
        ("OMS_LIMITS__BATCH", "9" * 5000, "OMS_LIMITS__BATCH must be a whole number from 1 to 100000."),
        ("OMS_LIMITS__QUOTA", SECRET, "OMS_LIMITS__QUOTA must be a whole number from 1 to 10000000."),
        (
            "OMS_LIMITS__HEADERS",
            f"3 {SECRET}",
            "OMS_LIMITS__HEADERS must be a number of bytes, such as 65536 or 64KiB, from 1KiB to 1MiB.",
        ),
        *(
            ("OMS_LIMITS__BODY", size, "OMS_LIMITS__BODY must be a number of bytes, such as 65536 or 64KiB, from 1 to")
            for size in ("1.5", "1.5 B", "1,5MiB", "1.0001KiB", "4MiBx", "8bit", "1e3", "-1", "true")
        ),
        ("OMS_DEDUP__BYTES", "1048576.5", "OMS_DEDUP__BYTES must be a number of bytes"),
        ("OMS_TIMEOUTS__BODY", "1.5", "OMS_TIMEOUTS__BODY must be a whole number from 1 to 3600000."),
        ("OMS_DRAIN", "1.5", "OMS_DRAIN must be a whole number from 0 to 3600000."),
        ("OMS_SERVER", SECRET, "OMS_SERVER must be auto, hypercorn or granian."),
        ("OMS_LOG__LEVEL", SECRET, "OMS_LOG__LEVEL must be debug, info, warning or error."),
        ("OMS_BINDING__STRICT", SECRET, "OMS_BINDING__STRICT must be true or false."),
        (
            "OMS_BACKEND",
            f"amqp//u:{SECRET}@mq",
            "OMS_BACKEND: a URL is expected, for example memory://, kafka://host:9092 or amqp://user:pass@host/vhost.",
        ),
        ("OMS_BACKEND_FILE", f"amqp://u:{SECRET}@mq", "the file cannot be read (No such file or directory)."),
        ("OMS_TLS__KEY", "x", "tls.certificate is missing; tls needs it."),
        ("OMS_MANAGEMENT", "127.0.0.1:8080", "listen and management name the same address;"),
        ("OMS_LIMITS__BODY", "65MiB", "limits.in_flight_bytes must be at least limits.body"),
        ("OMS_DELIVERY__LEASE", "900001", "delivery.lease must not be above delivery.max_lease."),
        ("OMS_CONFIG", "/nowhere/bridge.yaml", "/nowhere/bridge.yaml cannot be read (No such file or directory)."),
    ]
    for variable, value, sentence in cases:
        with subtests.test(variable=variable, value=value, sentence=sentence):
            assert sentence in refused({variable: value})


def test_a_wrong_file_stops_the_start(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str | bytes, str]] = [
        ("limits: {bodi: 1}", "limits.bodi in FILE is not a setting; did you mean limits.body?"),
        ("body: 1", "body in FILE is not a setting; did you mean limits.body?"),
        ("limit: {body: 1}", "limit in FILE is not a setting; did you mean limits?"),
        ("port: 1", "port in FILE is not a setting; did you mean listen?"),
        ("1: 2", "1 in FILE is not a setting; docs/configuration.md lists all settings."),
        ("limits: {batch: yes}", "limits.batch in FILE must be a whole number from 1 to 100000."),
        (
            "limits: {body: 1.5}",
            "limits.body in FILE must be a number of bytes, such as 65536 or 64KiB, from 1 to 1GiB.",
        ),
        (
            "limits: {body: true}",
            "limits.body in FILE must be a number of bytes, such as 65536 or 64KiB, from 1 to 1GiB.",
        ),
        ("limits: {batch: true}", "limits.batch in FILE must be a whole number from 1 to 100000."),
        ("timeouts: {body: 1.5}", "timeouts.body in FILE must be a whole number from 1 to 3600000."),
        ("drain: true", "drain in FILE must be a whole number from 0 to 3600000."),
        ("drain: ~", "drain in FILE must be a whole number from 0 to 3600000."),
        ("limits:", "limits in FILE: a section is expected, with some of body, headers, batch,"),
        ("tls: 'no'", "tls in FILE: a section is expected, with some of certificate, key, client_ca."),
        ("http: {hosts: {a: b}}", "http.hosts in FILE: a list is expected."),
        ("http: {hosts: ['http://a']}", "http.hosts in FILE: each is a host name without scheme and port,"),
        ("backend:", "backend in FILE: a URL is expected,"),
        (f"backend: [{SECRET}]", "backend in FILE: it should be a valid string."),
        (f"amqp://u:{SECRET}@mq", "The settings file FILE has no settings;"),
        (f"backend: '{SECRET}\n", "The settings file FILE, line 2: this is not YAML."),
        (f"backend: !!python/name:{SECRET} x\ny: [", "this is not YAML."),
        ("drain: 1\nlimits: {}\ndrain: 2\n", "The settings file FILE, line 3: this name occurs a second time."),
        ("limits:\n  batch: 1\n  batch: 2\n", "The settings file FILE, line 3: this name occurs a second time."),
        ("a: *b", "this is not YAML."),
        ("&a [*a]", "this is not YAML."),
        ("? [a]\n: b", "this is not YAML."),
        ("[" * 5000, "this is not YAML."),
        (b"\xff\xfe\x00", "this is not YAML."),
    ]
    for text, sentence in cases:
        with subtests.test(text=text, sentence=sentence):
            config = tmp_path / "bridge.yaml"
            config.write_bytes(text if isinstance(text, bytes) else text.encode())
            assert sentence in refused({}, config)


def test_a_wrong_option_is_named_as_it_was_typed() -> None:
    assert refused({"OMS_LISTEN": "y"}, overrides={"listen": "x"}).startswith("--listen: ")
    assert refused({}, overrides={"log": {"level": "x"}}).startswith("--log-level must be ")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read (Is a directory)" in refused({"OMS_CONFIG": str(tmp_path)})


def test_variables_that_kubernetes_adds_are_ignored(subtests: pytest.Subtests) -> None:
    for service in ("OMS", "OMS_BRIDGE"):
        with subtests.test(service=service):
            link = {
                f"{service}_SERVICE_HOST": "10.0.0.1",
                f"{service}_SERVICE_PORT": "8080",
                f"{service}_SERVICE_PORT_HTTP": "8080",
                f"{service}_PORT": "tcp://10.0.0.1:8080",
                f"{service}_PORT_8080_TCP": "tcp://10.0.0.1:8080",
                f"{service}_PORT_8080_TCP_PROTO": "tcp",
                f"{service}_PORT_8080_TCP_PORT": "8080",
                f"{service}_PORT_8080_TCP_ADDR": "10.0.0.1",
            }
            assert load(None, {}, link) == Settings()
            assert "did you mean OMS_BACKEND?" in refused(link | {"OMS_BACKENDS": "x"})


def test_the_backend_may_be_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"amqp://u:{SECRET}@mq/shop\n")
    settings = load(None, {}, {"OMS_BACKEND_FILE": str(secret)})
    assert settings.backend == f"amqp://u:{SECRET}@mq/shop"
    assert SECRET not in f"{settings!r} {settings}"
    overrides: tuple[dict[str, object], ...] = ({"backend": "memory://"}, {"backend_file": secret, "backend": "x://"})
    for override in overrides:
        sentence = refused({"OMS_BACKEND_FILE": str(secret)}, overrides=override)
        assert sentence.startswith("backend and backend_file are both set")


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    secret, secrets, config = tmp_path / "url", tmp_path / "secrets", tmp_path / "bridge.yaml"
    secret.write_text("memory://?bytes=1000000\n", "utf-8-sig")
    secrets.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", "utf-8-sig")
    config.write_text(f"backend_file: {secret}\ncallbacks: {{secrets_file: {secrets}}}\n", "utf-8-sig")
    settings = load(config, {}, {})
    assert settings.backend == "memory://?bytes=1000000"
    assert settings.callbacks.secrets == ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",)
    assert read_secrets(secrets) == ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]


def test_a_backend_file_that_holds_no_url(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"", "backend_file: the file must hold one line of text, the backend's URL."),
        (b"\n", "backend_file: the file must hold one line of text, the backend's URL."),
        (b"a://\nb://\n", "backend_file: the file must hold one line of text, the backend's URL."),
        (b"\xff", "backend_file: the file must hold one line of text, the backend's URL."),
        (f"amqp//{SECRET}".encode(), "backend: a URL is expected, for example memory://, kafka://host:9092"),
    ]
    for content, sentence in cases:
        with subtests.test(content=content, sentence=sentence):
            secret = tmp_path / "url"
            secret.write_bytes(content)
            assert refused({"OMS_BACKEND_FILE": str(secret)}).startswith(sentence)


def test_the_files_of_tls_must_be_readable(tmp_path: Path) -> None:
    (tmp_path / "pem").touch()
    pem = str(tmp_path / "pem")
    tls = load(None, {}, {"OMS_TLS__CERTIFICATE": pem, "OMS_TLS__KEY": pem}).tls
    assert tls is not None
    assert (tls.certificate, tls.key, tls.client_ca) == (Path(pem), Path(pem), None)
    sentence = refused({"OMS_TLS__CERTIFICATE": pem, "OMS_TLS__KEY": pem, "OMS_TLS__CLIENT_CA": str(tmp_path)})
    assert sentence == "OMS_TLS__CLIENT_CA: the file cannot be read (Is a directory)."


def test_redact_leaves_no_secret(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("memory://", "memory://"),
        ("kafka://a:1,b:2", "kafka://a:1,b:2"),
        (f"amqp://u:{SECRET}@mq:5672/shop", "amqp://u:***@mq:5672/shop"),
        (f"amqp://{SECRET}@mq", "amqp://***@mq"),
        (f"amqp://u:a/{SECRET}@{SECRET}?#@mq/shop", "amqp://u:***@mq/shop"),
        (f"kafka://mq?sasl_password={SECRET}", "kafka://mq?sasl_password=***"),
        (f"memory://?journal={SECRET}&x={SECRET}&{SECRET}", "memory://?journal=***&x=***&***"),
        (f"amqp://mq?{SECRET}+/={SECRET}", "amqp://mq?***"),
        (SECRET, "***"),
    ]
    for url, shown in cases:
        with subtests.test(url=url, shown=shown):
            assert redact(url) == shown


def test_the_document_lists_every_setting_as_it_is() -> None:
    document = DOCUMENT.read_text()
    listed = re.findall(r"^\| `(\S+)` \|", document, re.MULTILINE)
    assert listed == [setting.name for setting in list_settings()]
    for setting in list_settings():
        default = f"`{setting.default}`" if setting.default else ""
        allowed = setting.allowed.removeprefix("a number of bytes, such as 65536 or 64KiB, from ")
        cells = (f"`{setting.name}`", default, setting.description, allowed.removeprefix("a whole number from "))
        assert "| " + " | ".join(cells).replace("|  |", "| |").replace("|  |", "| |").rstrip() + " |" in document
        assert setting.description.endswith(".")


def test_every_variable_of_the_document_is_read() -> None:
    unnamed = [
        setting.variable
        for setting in list_settings()
        if setting.variable and setting.variable not in refused({setting.variable: "\0 no"})
    ]
    others = [f"OMS_AUTH__{name}" for name in ("TOKENS", "REVOKED", "RESOURCE", "PRODUCER_PROPERTY")]
    # their sentences name something else
    assert unnamed == ["OMS_BACKEND_FILE", "OMS_TLS__KEY", "OMS_TLS__CLIENT_CA", *others]


def test_destinations_have_settings_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    config = tmp_path / "bridge.yaml"
    verify = f"{{scheme: hmac, secret_file: {tmp_path / 'secret'}, header: X-Signature, tolerance: 60000}}"
    config.write_text(
        f"destinations:\n  Orders: {{properties_from_headers: [X-Kind]}}\n  alerts: {{verify: {verify}}}\n"
    )
    destinations = load(config, {}, {}).destinations
    assert destinations["Orders"].properties_from_headers == ("x-kind",)
    assert destinations["Orders"].verify is None
    found = destinations["alerts"].verify
    assert found is not None
    assert (found.scheme, found.tolerance, found.header) == ("hmac", 60_000, "x-signature")


def test_a_wrong_setting_of_a_destination_stops_the_start(tmp_path: Path, subtests: pytest.Subtests) -> None:
    secret, config = tmp_path / "secret", tmp_path / "bridge.yaml"
    secret.write_text(SECRET)
    verify = "{orders: {verify: {scheme: %s, secret_file: %s}}}"
    cases: dict[str, tuple[str, str]] = {
        "{orders: {verfy: {}}}": (".orders.verfy", " is not a setting; did you mean destinations.NAME.verify"),
        "{orders: 5}": (".orders", ": a section is expected, with some of properties_from_headers, verify."),
        "orders": ("", ": a section is expected, with names of your own."),
        "{orders: {verify: 5}}": (".orders.verify", ": a section is expected, with some of scheme, secret_file"),
        "{orders: {verify: {scheme: github}}}": (".orders.verify.secret_file", " is missing;"),
        verify % ("x", secret): (".orders.verify.scheme", " must be standard-webhooks, github"),
        verify % ("github", tmp_path): (".orders.verify.secret_file", ": the file cannot be read"),
        "{orders: {properties_from_headers: [x-oms-p-a]}}": (".orders.properties_from_headers", ": each is the name"),
    }
    for text, (place, sentence) in cases.items():
        with subtests.test(text):
            config.write_text(f"destinations: {text}\n")
            assert refused({}, config).startswith(f"destinations{place} in FILE{sentence}")
    for scheme, file in (("hmac", f"{secret}"), ("github", f"{secret}, header: x")):
        with subtests.test(scheme):
            config.write_text(f"destinations: {verify % (scheme, file)}\n")
            assert refused({}, config).startswith("verify.header of a destination goes with the scheme hmac")
    assert "OMS_DESTINATIONS is not a setting" in refused({"OMS_DESTINATIONS": "{}"})


def test_variables_of_other_commands_are_neither_settings_nor_mistakes() -> None:
    others = {"OMS_MIRROR_JARS": "/opt/jars", "OMS_URL": "http://a:8080", "OMS_MANAGEMENT_URL": "http://a:9090"}
    assert load(None, {}, others) == load(None, {}, {})
