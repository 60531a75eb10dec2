"""The mirror: what goes through a bridge, as a Delta table. A Spark job that reads brokers, and commands on its table.

A row travels `sources/` (logs of a backend as rows) → `sink.py` (one commit for each batch). All other modules read
the table by `table.py`. The only package that may import pyspark.
"""
