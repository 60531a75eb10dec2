"""What a person sees of a mirror while it runs: a display, log lines, a status file, metrics.

Events (`events.py`) are folded into one `State` (`state.py`, pure); everything else shows it. `watching.py` wires them.
"""
