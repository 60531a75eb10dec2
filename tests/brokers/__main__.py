"""`make brokers`: fetches what the tests' brokers need; the first test that wants a broker does the same."""

import sys

from tests.brokers.cache import Missing
from tests.brokers.provide import advice, kafka_runtime

try:
    kafka_runtime()
except Missing as missing:
    sys.exit(advice(missing))
