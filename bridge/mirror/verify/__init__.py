"""`mirror verify`: whether the mirror holds what it should. `facts.py` looks, `judge.py` judges, `show.py` says so."""
