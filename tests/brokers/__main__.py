"""`make brokers`: fetches what the tests' brokers need; the first test that needs a broker does the same."""

import sys

from tests.brokers.cache import Missing
from tests.brokers.provide import advice, kafka_runtime, rabbitmq_advice, rabbitmq_runtime

lacks = []
for runtime, advise in (kafka_runtime, advice), (rabbitmq_runtime, rabbitmq_advice):
    try:
        runtime()
    except Missing as missing:
        lacks.append(advise(missing))
sys.exit("\n".join(lacks) or None)
