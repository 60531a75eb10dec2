"""One `Settings` from the three places; every mistake becomes one sentence that says what to change."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, InitSettingsSource

from bridge.settings.file import read_file
from bridge.settings.leaves import Leaf, leaves
from bridge.settings.model import PREFIX, Settings
from bridge.settings.values import SettingsError

CONFIG: Final = "OMS_CONFIG"

_LEAVES: Final = {leaf.path: leaf for leaf in leaves()}
_MEANT: Final = {
    **{leaf.path[-1]: leaf.name for leaf in reversed(list(leaves()))},  # also when it was written outside its section
    **{leaf.path[0]: leaf.path[0] for leaf in leaves()},
    **{leaf.name: leaf.name for leaf in leaves()},
}
"""What may have been meant by what was written."""
_SERVICE_HOST: Final = "_SERVICE_HOST"
_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?")
_ELSEWHERE: Final = frozenset({"OMS_MIRROR_JARS"})
"""Variables that are no settings: the mirror reads them itself."""


class _Environment(EnvSettingsSource):
    """Variables as a caller hands them over, not those of this process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings)
        self.env_vars = {name.lower(): value for name, value in environ.items()}


def load(config: Path | None, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Build the settings: `overrides` (nested as the model is) win over environ, environ over the file.

    Without `config` the variable OMS_CONFIG may name the file. Raises `SettingsError`.
    """
    given = _variables(environ)
    if config is None and CONFIG in given:
        config = Path(given[CONFIG])
    file = {} if config is None else read_file(config)
    sources = (
        InitSettingsSource(Settings, dict(overrides)),
        _Environment(given),
        InitSettingsSource(Settings, file),
    )
    by_library: dict[str, Any] = {"_build_sources": (sources, {})}  # a type checker sees the fields alone
    try:
        return Settings(**by_library)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = tuple(str(part) for part in first["loc"])
        place = _place(path, overrides, given, config)
        raise SettingsError(_sentence(path, first["type"], first["msg"], place)) from None


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Pick the OMS_* variables. Raises `SettingsError` for an unknown or an empty one."""
    known = {CONFIG: CONFIG} | {leaf.variable: leaf.variable for leaf in _LEAVES.values()}
    ours = (name for name in environ if name.startswith(PREFIX) and name not in _ELSEWHERE)
    given = {name: environ[name] for name in ours if not _is_link(name, environ)}
    for name, value in given.items():
        if name not in known:
            raise SettingsError(f"{name} is not a setting; {_suggestion(name.upper(), known)}")
        if not value.strip():
            # An empty OMS_BACKEND is a deployment's forgotten variable: the default would keep its orders in memory.
            raise SettingsError(f"{name} is empty; give it a value or remove it.")
    return given


def _is_link(name: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes made the variable: a Service called oms or oms-bridge puts a dozen into every pod."""
    hosts = (key for key in environ if key.startswith(PREFIX) and key.endswith(_SERVICE_HOST))
    services = (host.removesuffix(_SERVICE_HOST) for host in hosts)
    return any(name.startswith(service) and _LINK.fullmatch(name, len(service)) for service in services)


def _place(path: tuple[str, ...], overrides: Mapping[str, Any], given: Mapping[str, str], config: Path | None) -> str:
    """Name what to change: the option, the variable, or the name and its file."""
    value: Any = overrides
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if path and value is not None:
        return "--" + "-".join(path).replace("_", "-")
    leaf = _leaf(path)
    if leaf is not None and leaf.variable in given:
        return leaf.variable
    name = leaf.name if leaf is not None else ".".join(path)
    return f"{name} in {config}" if config is not None else name


def _sentence(path: tuple[str, ...], kind: str, message: str, place: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be", "it should be")
    leaf = _leaf(path)
    if kind == "extra_forbidden":
        return f"{place} is not a setting; {_suggestion('.'.join(path), _MEANT)}"
    if kind == "missing":
        return f"{place} is missing; {path[0]} cannot do without it."
    if kind == "model_type":
        names = ", ".join(known[-1] for known in _LEAVES if known[:-1] == path)
        return f"{place}: a section is expected, with some of {names}."
    if leaf is None:  # a rule between settings: its sentence names them
        return f"{message}."
    return f"{place}: {leaf.allowed} is allowed." if leaf.allowed else f"{place}: {message}."


def _leaf(path: tuple[str, ...]) -> Leaf | None:
    """Find the setting that an error's location lies in; an entry of a list lies one deeper."""
    return next((leaf for known, leaf in _LEAVES.items() if path[: len(known)] == known), None)


def _suggestion(wanted: str, meant: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(wanted, meant, 1)
    return f"did you mean {meant[near[0]]}?" if near else "docs/configuration.md lists them all."
