"""The command line. Each command imports what it needs when it runs, so that `--help` and a failing start are quick.

Exit status: 0 done, 1 an error (one sentence on standard error), 2 a mistyped command, 3 no message.
"""
