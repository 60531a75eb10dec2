"""An AMQP 0-9-1 client for asyncio around pika's codec and state machine.

Ours, because of what the bridge needs of one connection: all frames of a turn of the event loop in one write, confirms
without a callback for each message, a channel's end as one future with its reason, an alarm that does not end the
connection, and a header table decoder that keeps bytes which are not UTF-8. See `docs/decisions/0041`.
"""
