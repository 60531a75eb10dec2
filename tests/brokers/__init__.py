"""Real brokers for tests. A test asks the fixture `kafka_servers`, or makes one that it may kill with `own_kafka`.

A broker belongs to the process of the tests that started it (one per worker of pytest: 225 MB each, nothing shared
between processes), writes below a directory of that test, and ends with it.
"""
