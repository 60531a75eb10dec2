"""Typed, frozen settings from a YAML file, OMS_* variables and the command line; a mistake stops the start."""

from bridge.settings.leaves import Leaf, leaves
from bridge.settings.load import load
from bridge.settings.model import Binding, Delivery, Http, Limits, Log, Settings, Timeouts, Tls
from bridge.settings.values import Address, SettingsError, redact

__all__ = [
    "Address",
    "Binding",
    "Delivery",
    "Http",
    "Leaf",
    "Limits",
    "Log",
    "Settings",
    "SettingsError",
    "Timeouts",
    "Tls",
    "leaves",
    "load",
    "redact",
]
