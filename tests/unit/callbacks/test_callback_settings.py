"""The settings of callbacks: what is wrong is said, and nothing said shows a secret."""

from pathlib import Path

import pytest

from bridge.settings import SettingsError, load

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the canary that no sentence may show


def test_what_is_wrong_stops_the_start(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"TARGETS": "https://shop.example"}, "callbacks.targets needs callbacks.secrets or callbacks.secrets_file"),
        ({"TARGETS": f"https://shop.example/{SECRET}"}, "OMS_CALLBACKS__TARGETS: one of them is not a target"),
        ({"TARGETS": SECRET}, "OMS_CALLBACKS__TARGETS: one of them is not a target"),
        ({"NETWORKS": SECRET}, "OMS_CALLBACKS__NETWORKS: one of them is not a network"),
        ({"NETWORKS": "127.0.0.1/32, 169.254.169.254/32"}, "OMS_CALLBACKS__NETWORKS: 169.254.169.254/32 cannot be"),
        ({"SECRETS": f"{SECRET}, {SECRET[6:]}"}, "OMS_CALLBACKS__SECRETS: secret 2 does not begin with whsec_"),
        ({"SECRETS": SECRET[:20]}, "OMS_CALLBACKS__SECRETS: secret 1 "),
        ({"SECRETS_FILE": "/nowhere"}, "OMS_CALLBACKS__SECRETS_FILE: the file cannot be read"),
        ({"SECRETS_FILE": "/nowhere", "SECRETS": SECRET}, "callbacks.secrets and callbacks.secrets_file are both set"),
        ({"CA": "/nowhere"}, "OMS_CALLBACKS__CA: the file cannot be read"),
        ({"IN_FLIGHT": "65"}, "OMS_CALLBACKS__IN_FLIGHT must be a whole number from 1 to 64"),
    ]
    for given, sentence in cases:
        with subtests.test(given=given, sentence=sentence):
            with pytest.raises(SettingsError) as failure:
                load(None, {}, {f"OMS_CALLBACKS__{name}": value for name, value in given.items()})
            assert str(failure.value).startswith(sentence)
            assert SECRET[6:20] not in str(failure.value)


@pytest.mark.parametrize("content", ["", f"{SECRET}\n{SECRET}\n"])
def test_a_file_holds_its_secrets_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "secrets").write_text(content)
    with pytest.raises(SettingsError, match=r"callbacks\.secrets_file: the file must hold one line of text"):
        load(None, {}, {"OMS_CALLBACKS__SECRETS_FILE": str(tmp_path / "secrets")})


def test_secrets_are_read_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(f"{SECRET}, {SECRET}\n")
    for environ in ({"SECRETS_FILE": str(tmp_path / "secrets")}, {"SECRETS": f"{SECRET},{SECRET}"}):
        settings = load(None, {}, {f"OMS_CALLBACKS__{name}": value for name, value in environ.items()})
        assert settings.callbacks.secrets == (SECRET, SECRET)
        assert SECRET not in f"{settings!r} {settings} {settings.callbacks!r} {settings.callbacks}"
