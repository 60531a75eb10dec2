"""Golden journals: what earlier versions of the bridge wrote, which every later one has to read.

Each folder is named after the version of the tables (`adapters/memory/journal_schema.py`) and never changes:

| file | |
|---|---|
| `stopped.tar.xz` | the directory of a journal whose bridge was stopped |
| `killed.tar.xz` | the same story, but the bridge was killed: most of it is in SQLite's write-ahead log |
| `stopped.json`, `killed.json` | what the version that wrote it found in it, by `observe` |

A change of the tables adds a folder: `python -m tests.ledger.golden.make`.
"""
