"""`mirror verify`: whether the mirror holds what it should.

`observations.py` reads the mirror and asks the backend, `findings.py` evaluates that, `show.py` prints it.
"""
