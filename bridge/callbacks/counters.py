"""The counters of callbacks that metrics read. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class CallbackCounters:
    """The totals of all callbacks since the start, and their current numbers. `bridge/metrics.py` describes each."""

    callbacks_delivered: int = 0
    callbacks_failed: int = 0
    # current numbers
    callbacks: int = 0
    callback_circuits_open: int = 0
