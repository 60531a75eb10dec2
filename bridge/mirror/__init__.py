"""The mirror: what goes through a bridge, as a Delta table. A Spark job that reads brokers, and commands on its table.

A row travels `sources/` (what the backend keeps, as rows) → `sink/` (one commit for each batch). `table.py` is how
everything else reads the table. The only package that may import pyspark.
"""
