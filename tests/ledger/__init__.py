"""A ledger over HTTP: every attempt and its answer, every delivery, every acknowledgement, and what is wrong with them.

`book` and `verdict` are pure; `client`, `producers` and `consumers` fill the book through a bridge that may die at any
moment; `stage` starts and ends the bridges; `run` puts them together. Nothing here depends on the backend.
"""
