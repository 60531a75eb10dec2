"""`mirror report`: one HTML page about what was mirrored. `figures.py` counts with DuckDB, `page.py` is pure."""
