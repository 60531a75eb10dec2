"""Which bridges the table needs: a comparison has two, and several settings that do not affect each other."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from bridge.settings import list_settings
from tests.settings.bridge_client import BridgeClient, Resources

BOTH: Final = ("hypercorn", "granian")

Value = str | Callable[[Resources], str]
Observe = Callable[[BridgeClient], object]


class NotObserved(Enum):
    """Instead of what a client sees with the default value."""

    LONG = "the default is seconds or minutes, and nothing can be seen before they are over"
    NEEDED = "without the setting such a bridge does not start, or does not do what the row looks at"


class Row(NamedTuple):
    """One setting: a value that is not the default, and what a client sees then and otherwise."""

    setting: str
    value: Value
    observe: Observe
    """What a client does; returns what it saw."""
    changed: object
    default: object
    observe_default: Observe | None = None
    """Instead of `observe` on the bridge with the default value."""

    @property
    def variable(self) -> str:
        return _VARIABLES[self.setting]


class Comparison(NamedTuple):
    """Two bridges that differ in the settings of `rows`."""

    name: str
    rows: tuple[Row, ...]
    backend: str = "memory://"
    servers: tuple[str, ...] = ("hypercorn",)
    needs: Callable[[Resources], Mapping[str, str]] | None = None
    """Variables of both bridges."""
    ends_bridges: bool = False
    """The rows end the bridges."""

    def default_variables(self, resources: Resources) -> dict[str, str]:
        """Return the variables of the bridge with the defaults."""
        return dict(self.needs(resources)) if self.needs is not None else {}

    def changed_variables(self, resources: Resources) -> dict[str, str]:
        """Return the variables of the bridge with the changed values."""
        values = {row.variable: row.value if isinstance(row.value, str) else row.value(resources) for row in self.rows}
        return self.default_variables(resources) | values


_VARIABLES: Final = {setting.name: setting.variable for setting in list_settings()}
