"""Which tests a run takes and in which order. Pure; `tests/conftest.py` calls it.

`make test` runs the tests that carry neither `extended` nor `soak`, `make test-all` those marked `extended` as well,
`make soak` everything.
"""

import fnmatch
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

SOAK: Final = os.environ.get("OMS_TEST_SOAK", "") == "1"
"""`make soak` sets it: tests marked `soak` run, and others take more examples and more kills."""
STRICT: Final = os.environ.get("CI", "") == "true"
"""CI: a missing part fails, and so does a skip that is not in `skips.toml`."""

SECONDS_FILE: Final = Path(__file__).with_name("seconds.json")
"""Seconds of each test file and tier, measured by `make seconds`: only the order and the shards depend on them."""
SKIPS_FILE: Final = Path(__file__).with_name("skips.toml")
UNKNOWN_SECONDS: Final = 10.0
"""Taken for a file that was never measured."""


class Skip(NamedTuple):
    """A row of `skips.toml`: which tests may skip, and with which reason. Shell patterns."""

    test: str
    reason: str

    def allows(self, test: str, reason: str) -> bool:
        """Whether this row covers a skipped test."""
        return _matches(test, self.test) and _matches(reason, self.reason)


def read_seconds(text: str) -> dict[str, float]:
    """Parse the measured seconds by file; raises ValueError if a value is not a number."""
    return {file: float(seconds) for file, seconds in json.loads(text).items()}


def read_skips(text: str) -> list[Skip]:
    """Parse `skips.toml`."""
    return [Skip(row["test"], row["reason"]) for row in tomllib.loads(text).get("skip", [])]


def measured(file: str, *, extended: bool) -> str:
    """Return the key of `seconds.json` for one tier of a file: its other tier may take a very different time."""
    return f"{file} extended" if extended else file


def slowest_first(files: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Order files so that the last ones to start are short, and no worker waits for one long file."""
    return sorted(files, key=lambda file: (-seconds.get(file, UNKNOWN_SECONDS), file))


def shard(files: Iterable[str], seconds: Mapping[str, float], wanted: str) -> frozenset[str]:
    """Return the files of one shard, `2/3` for the second of three: each file is in exactly one, the sums are even.

    Raises ValueError if `wanted` is not `number/count` with 1 <= number <= count.
    """
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", wanted)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"a shard is number/count, such as 2/3, not {wanted!r}")
    sums, shards = [0.0] * int(found[2]), [set[str]() for _ in range(int(found[2]))]
    for file in slowest_first(files, seconds):
        least = sums.index(min(sums))
        sums[least] += seconds.get(file, UNKNOWN_SECONDS)
        shards[least].add(file)
    return frozenset(shards[int(found[1]) - 1])


def unexpected(skipped: Iterable[tuple[str, str]], allowed: Sequence[Skip]) -> list[tuple[str, str]]:
    """Return the skipped tests, with their reasons, that no row allows."""
    return [(test, reason) for test, reason in skipped if not any(row.allows(test, reason) for row in allowed)]


def _matches(text: str, pattern: str) -> bool:
    """Match `*` and `?` only: brackets are part of the name of a test with parameters."""
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))
