"""Which server `auto` chooses and why, and what an explicit one demands."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bridge.server import ChosenServer, Tls, choose_server
from bridge.server.granian import VERSION


@pytest.fixture
def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("granian")
    other.__version__ = "9.9.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "granian", other)
    monkeypatch.setitem(sys.modules, "granian._granian", ModuleType("granian._granian"))


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "granian", None)


def test_granian_is_chosen_where_it_is_installed() -> None:
    chosen = choose_server("auto", None)
    assert chosen == ChosenServer("granian", "installed by the extra fast")
    assert str(chosen) == "Granian (installed by the extra fast)"


@pytest.mark.usefixtures("not_installed")
def test_hypercorn_is_chosen_without_the_extra() -> None:
    assert choose_server("auto", None).kind == "hypercorn"
    assert "pip install 'openmessaging-bridge[fast]'" in choose_server("auto", None).reason
    with pytest.raises(RuntimeError, match="the extra fast"):
        choose_server("granian", None)


@pytest.mark.usefixtures("other_version")
def test_hypercorn_is_chosen_beside_another_granian() -> None:
    sentence = f"the bridge embeds Granian {VERSION}; 9.9.9 is installed"
    assert choose_server("auto", None) == ChosenServer("hypercorn", sentence)
    with pytest.raises(RuntimeError, match=r"9\.9\.9 is installed"):
        choose_server("granian", None)


def test_a_server_that_is_set_is_kept() -> None:
    assert str(choose_server("hypercorn", None)) == "Hypercorn (named by the setting server)"
    assert str(choose_server("granian", None)) == "Granian (named by the setting server)"


def test_client_certificates_are_for_hypercorn() -> None:
    assert choose_server("auto", Tls(Path("a.pem"), Path("a.key"), Path("ca.pem"))).kind == "hypercorn"
