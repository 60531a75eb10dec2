"""Typed, frozen settings from a YAML file, OMS_* variables and the command line; a mistake stops the start."""

from bridge.settings.limits import LimitsSettings
from bridge.settings.load import SettingInfo, list_settings, load
from bridge.settings.model import Settings
from bridge.settings.values import Address, SettingsError, read_secrets, redact

__all__ = [
    "Address",
    "LimitsSettings",
    "SettingInfo",
    "Settings",
    "SettingsError",
    "list_settings",
    "load",
    "read_secrets",
    "redact",
]
