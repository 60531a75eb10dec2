"""Puts together what sends callbacks. Imported only where they are on: aiohttp takes 10 MiB."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bridge.callbacks.addresses import Addresses
from bridge.callbacks.dialer import Dialer
from bridge.callbacks.dispatch import Dispatch
from bridge.callbacks.egress import Egress
from bridge.callbacks.registry import Sending
from bridge.callbacks.signing import Signer
from bridge.callbacks.targets import Targets
from bridge.engine.clock import Clock


class Allowed(NamedTuple):
    """The callbacks' share of the settings; `docs/configuration.md` explains each. Milliseconds, bytes."""

    targets: Sequence[str]
    networks: Sequence[str]
    secrets: Sequence[str]
    ca: Path | None
    in_flight: int
    timeout: int
    lease: int
    largest: int
    """What a body may inflate to."""


def assemble(allowed: Allowed, clock: Clock) -> Sending:
    """Build it. Raises `OSError` for a file without authorities, `ValueError` for the rest."""
    targets = Targets.parse(allowed.targets)
    dialer = Dialer(Addresses.parse(allowed.networks), allowed.ca)
    egress = Egress(targets, dialer, allowed.timeout)
    dispatch = Dispatch(egress, Signer.parse(allowed.secrets), clock, allowed.largest)
    return Sending(targets, dispatch, allowed.in_flight, allowed.lease, egress.close)
