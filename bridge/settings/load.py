"""Builds `Settings` from a YAML file, OMS_* variables and options. A mistake becomes one sentence that says its place.

No sentence quotes a value of the file or of a variable: it may be a password.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, InitSettingsSource

from bridge.settings.limits import READ_BYTES
from bridge.settings.model import NESTED, PREFIX, SOURCES, Settings
from bridge.settings.values import SettingsError

CONFIG: Final = "OMS_CONFIG"
"""The variable that names the settings file."""

ANY_NAME: Final = "NAME"
"""In the path of a setting: a name that the user chooses, such as that of a destination."""

_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_SERVICE_HOST: Final = "_SERVICE_HOST"
_SERVICE_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?")
_NOT_SETTINGS: Final = frozenset({"OMS_MANAGEMENT_URL", "OMS_MIRROR_JARS", "OMS_TOKEN_FILE", "OMS_URL"})
"""Variables that other commands read themselves."""


class SettingInfo(NamedTuple):
    """One setting: its name, and what docs/configuration.md says of it."""

    path: tuple[str, ...]
    description: str
    default: str
    """As a user writes it; empty if there is none."""
    allowed: str
    """The allowed values; empty if only the validator of the setting has them."""

    @property
    def name(self) -> str:
        """The name in documents and sentences: `limits.body`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """The environment variable: `OMS_LIMITS__BODY`. Empty below `NAME`: variables have no lower case."""
        return "" if ANY_NAME in self.path else PREFIX + NESTED.join(self.path).upper()


def list_settings(model: type[BaseModel] = Settings, section: tuple[str, ...] = ()) -> Iterator[SettingInfo]:
    """Yield every setting in the order of the model."""
    for name, field in model.model_fields.items():
        types = _types(field.annotation)
        nested = next((t for t in types if isinstance(t, type) and issubclass(t, BaseModel)), None)
        if nested is not None:
            below = (name, ANY_NAME) if get_origin(field.annotation) is dict else (name,)
            yield from list_settings(nested, (*section, *below))
        else:
            default = "" if field.is_required() else _shown(field.default, in_bytes=READ_BYTES in field.metadata)
            yield SettingInfo((*section, name), field.description or "", default, _allowed(types, field.metadata))


def load(config: Path | None, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Build the settings. `overrides` (nested as the model is) win over `environ`, `environ` wins over the file.

    Without `config`, the variable OMS_CONFIG may name the file. Raises `SettingsError`.
    """
    variables = _read_variables(environ)
    if config is None and CONFIG in variables:
        config = Path(variables[CONFIG])
    environment = EnvSettingsSource(Settings)
    environment.env_vars = {name.lower(): value for name, value in variables.items()}  # not those of this process
    file = InitSettingsSource(Settings, {} if config is None else _read_file(config))
    previous = SOURCES.set((environment, file))
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = tuple(str(part) for part in first["loc"])
        place = _place(path, overrides, variables, config)
        raise SettingsError(_sentence(path, first["type"], first["msg"], place)) from None
    finally:
        SOURCES.reset(previous)


def _read_file(path: Path) -> dict[str, Any]:
    from bridge.settings.yaml_file import read_file  # noqa: PLC0415 - 1 MiB of memory that only a file needs

    return read_file(path)


def _read_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the OMS_* variables. Raises `SettingsError` for an unknown or an empty one."""
    known = {CONFIG: CONFIG} | {setting.variable: setting.variable for setting in _BY_PATH.values() if setting.variable}
    by_mistake = known | {f"{PREFIX}PORT": f"{PREFIX}LISTEN"}
    names = (name for name in environ if name.startswith(PREFIX) and name not in _NOT_SETTINGS)
    variables = {name: environ[name] for name in names if not _is_service_link(name, environ)}
    for name, value in variables.items():
        if name not in known:
            raise SettingsError(f"{name} is not a setting; {_suggestion(name.upper(), by_mistake)}")
        if not value.strip():
            # An empty OMS_BACKEND is a deployment's forgotten variable: the default would keep its orders in memory.
            raise SettingsError(f"{name} is empty; give it a value or remove it.")
    return variables


def _is_service_link(name: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes made the variable: a Service called oms or oms-bridge adds a dozen to every pod."""
    hosts = (key for key in environ if key.startswith(PREFIX) and key.endswith(_SERVICE_HOST))
    services = (host.removesuffix(_SERVICE_HOST) for host in hosts)
    return any(name.startswith(service) and _SERVICE_LINK.fullmatch(name, len(service)) for service in services)


def _place(
    path: tuple[str, ...], overrides: Mapping[str, Any], variables: Mapping[str, str], config: Path | None
) -> str:
    """Name what to change: the option, the variable, or the setting and its file."""
    value: Any = overrides
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if path and value is not None:
        return "--" + "-".join(path).replace("_", "-")
    setting = _find(path)
    if setting is not None and setting.variable in variables:
        return setting.variable
    name = ".".join(path if setting is None else path[: len(setting.path)])
    return f"{name} in {config}" if config is not None else name


def _sentence(path: tuple[str, ...], kind: str, message: str, place: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be", "it should be")
    setting = _find(path)
    if kind == "extra_forbidden":
        return f"{place} is not a setting; {_suggestion('.'.join(path), _BY_MISTAKE)}"
    if kind == "missing":
        return f"{place} is missing; {path[0]} needs it."
    if kind == "model_type":
        inside = (known[len(path)] for known in _BY_PATH if len(known) > len(path) and _is_below(path, known))
        names = ", ".join(dict.fromkeys(inside))
        return f"{place}: a section is expected, with some of {names}."
    if kind == "dict_type":
        return f"{place}: a section is expected, with names of your own."
    if setting is None:  # a rule between settings: its sentence names them
        return f"{message}."
    return f"{place} must be {setting.allowed}." if setting.allowed else f"{place}: {message}."


def _find(path: tuple[str, ...]) -> SettingInfo | None:
    """Return the setting in which an error's location lies: an entry of a list is one level deeper."""
    return next((setting for known, setting in _BY_PATH.items() if _is_below(known, path)), None)


def _is_below(section: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a path is that of a section or begins with it."""
    pairs = zip(section, path, strict=False)
    return len(path) >= len(section) and all(a == b or ANY_NAME in {a, b} for a, b in pairs)


def _suggestion(written: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(written, known, 1)
    return f"did you mean {known[near[0]]}?" if near else "docs/configuration.md lists all settings."


def _types(annotation: object) -> Sequence[object]:
    """Return the types inside `X | None` and `Annotated[X, …]`; a tuple and a Literal stay whole."""
    if get_origin(annotation) in (None, tuple, Literal):
        return (annotation,)
    return [part for inner in get_args(annotation) for part in _types(inner)]


def _allowed(types: Sequence[object], metadata: Sequence[object]) -> str:
    low = next((rule.ge for rule in metadata if hasattr(rule, "ge")), None)
    high = next((rule.le for rule in metadata if hasattr(rule, "le")), None)
    if READ_BYTES in metadata:
        limits = f"from {_shown(low, in_bytes=True)} to {_shown(high, in_bytes=True)}"
        return f"a number of bytes, such as 65536 or 64KiB, {limits}"
    if int in types:
        return f"a whole number from {low} to {high}"
    if bool in types:
        return "true or false"
    choices = next((get_args(t) for t in types if get_origin(t) is Literal), ())
    return " or ".join((", ".join(choices[:-1]), choices[-1])) if choices else ""


def _shown(value: object, *, in_bytes: bool) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and in_bytes:
        return next(
            (f"{value // size}{unit}" for unit, size in _UNITS if value >= size and not value % size), str(value)
        )
    return str(value)


_BY_PATH: Final = {setting.path: setting for setting in list_settings()}
_BY_MISTAKE: Final = {
    "port": "listen",
    **{setting.path[-1]: setting.name for setting in reversed(_BY_PATH.values())},  # without its section
    **{setting.path[0]: setting.path[0] for setting in _BY_PATH.values()},
    **{setting.name: setting.name for setting in _BY_PATH.values()},
}
"""Names that a user may write by mistake, with the setting that is meant."""
