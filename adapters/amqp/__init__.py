"""An AMQP 0-9-1 client for asyncio around pika's codec and state machine.

The bridge needs: one write for all frames of an iteration of the event loop, confirms without a callback for each
message, a future with the reason why a channel was closed, connections that survive an alarm, and a decoder of header
tables that keeps bytes which are not UTF-8. No client library has all of it: see `docs/decisions/0041`.
"""
