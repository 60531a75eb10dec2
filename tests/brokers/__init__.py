"""Real brokers for tests. A test asks the fixture `kafka_servers`, or makes one that it may kill with `own_kafka`.

A broker lives in the process of the tests that started it (one per worker of pytest: 225 MB each, and no life shared
between processes), writes below a directory of that test, and dies with it.
"""
