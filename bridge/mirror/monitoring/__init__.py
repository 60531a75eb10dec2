"""What an operator sees of a running mirror: a terminal view or log lines, a status file, metrics and probes.

`status.py` holds what is known, `reporter.py` changes and logs it; the other modules show it.
"""
