"""The ceiling of the mirror of RabbitMQ: a stream read by a program that uses pika itself and does nothing with it.

Run as a program: `native_stream.py URL STREAM NUMBER`. It prints the messages a second from the first to the last.
Credit of 2,000 and an acknowledgement for every 500 were the best of those tried.
"""

import sys
import time
from typing import Any, Final

import pika

CREDIT: Final = 2000
EACH: Final = 500


def main() -> None:
    """Read so many from the oldest on."""
    url, stream, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=CREDIT)
    came = 0
    begun = 0.0

    def arrived(_channel: object, method: Any, _properties: object, _body: bytes) -> None:  # noqa: ANN401 - pika's
        nonlocal came, begun
        begun = begun or time.perf_counter()
        came += 1
        if came % EACH == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if came == number:
            print(number / (time.perf_counter() - begun), flush=True)
            # left as it is: 3.10 closes a connection on which something of a stream is given back, with an error
            sys.stdout.flush()
            raise SystemExit

    channel.basic_consume(stream, arrived, arguments={"x-stream-offset": "first"})
    channel.start_consuming()


if __name__ == "__main__":
    main()
