"""The mirror: what goes through a bridge, as Parquet. A Spark job that reads brokers, and what one does with its files.

A row travels `sources/` (what the backend keeps, as rows) → `sink/` (staged, committed by a manifest, renamed).
The only room that may import pyspark.
"""
