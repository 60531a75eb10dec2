"""Durations and sizes as a person writes them."""

import re
from datetime import timedelta
from typing import Final

import click

_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1)}
_SIZES: Final = {"MB": 1 << 20, "GB": 1 << 30}


class _Duration(click.ParamType[timedelta]):
    """`30d` or `12h`."""

    name = "duration"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration, or say what one looks like."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})([dh])", value)
        if found is None:
            self.fail(f"{value!r} is not a duration: write days or hours, such as 30d or 12h", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


class _Size(click.ParamType[int]):
    """`256MB` or `1GB`."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes, or say what a size looks like."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([1-9]\d{0,5})(MB|GB)", value)
        if found is None:
            self.fail(f"{value!r} is not a size: write 256MB or 1GB", param, ctx)
        return int(found[1]) * _SIZES[found[2]]


DURATION: Final = _Duration()
SIZE: Final = _Size()
