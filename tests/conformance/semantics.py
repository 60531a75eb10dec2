"""The meaning, sentence by sentence, each with an id. Tests quote these sentences; `test_coverage` counts them."""

from typing import Final

TEXT: Final = """
[meaning.same] A program that talks to the bridge must not notice which broker is behind it. So the meaning is fixed
here, once; an adapter reaches it natively where it can, the bridge emulates the rest,
[meaning.said] and what neither can do is said (`x-oms-applied`, `/v1/capabilities`), never silently dropped.
[meaning.suite] One conformance suite, keyed on capabilities and never on an adapter's name, runs on all three.

[group.is] - **Group**: (destination, consumerId).
[group.once] Every group sees every message of a destination once, plus redeliveries.
[group.new] A new group starts at the oldest message still kept
[group.latest] (configurable: `earliest` | `latest`).
[group.share] Consumers of one group share its messages.
[order.key] - **Order**: messages with the same messageKey reach a group in the order they were stored, also while
others are in flight,
[order.redelivery] also after a redelivery: the next message of a key waits until the one before it is settled.
[order.beats-priority] Key order beats priority.
[priority.higher] - **Priority**: among messages ready for delivery the higher goes first.
[priority.window] Best effort, as the specification says: within the look-ahead window always,
[priority.backlog] across a whole backlog where the backend can (RabbitMQ; Kafka with priority lanes switched on).
[delay.due] - **Delay**: due = bornTimestamp + delayTime.
[delay.early] Never delivered early;
[delay.late] p99 late by less than 100 ms on an idle machine;
[delay.restart] survives a restart of the bridge
[delay.broker-restart] and of the broker;
[delay.year] any length up to a year.
[delay.already] A message already due goes at once.
[expiry.never-after] - **Expiry**: never handed out after expireTime,
[expiry.redelivery] also not as a redelivery;
[expiry.born] `expireTime <= bornTimestamp` means it never expires.
[expiry.before-due] If it expires before it is due it is accepted and dropped,
[expiry.counted] and counted.
[lease.receipt] - **Lease**: under `x-oms-ack: true` a delivery is a lease with a receipt.
[lease.ack] Ack ends it;
[lease.nack] nack, the lease's end,
[lease.stream] the end of a push stream
[lease.death] or the death of the bridge makes the message ready again
[lease.nack-delay] (nack: after its delay).
[lease.count] deliveryCount is 1 on the first delivery, and one more on each.
[once.settled] - **At most once**: without ack the message is settled before its bytes are sent.
[dead.after] - **Dead letter**: after `max_deliveries`, with the reason;
[dead.confirmed] settled only once the dead-letter write is confirmed.
[partition.count] - **Partition**: a destination has N partitions (Kafka: the topic's; elsewhere configured, default
8).
[partition.explicit] An explicit `partition` wins;
[partition.murmur2] else murmur2(messageKey) mod N, the Java client's function, on every backend;
[partition.spread] else spread.
[scale.one-group] - **Scale-out**: ten replicas of an application, each with its own bridge beside it, are one group.
[scale.fair] Every replica gets a fair share of the partitions, also on RabbitMQ (a bridge that holds more than its
share gives some up), and none stays idle while another drowns.
[scale.any-partition] A pull serves whatever partition has something ready;
[scale.heads] the heads of all partitions a bridge holds compete by priority.
[bodies.unchanged] - **Bodies** are never changed.
[bodies.inflated] Compression is undone for a consumer that does not accept it.
[native.neighbours] - **Vendor-native neighbours** are first-class, or nobody can migrate: a message produced natively
(no OpenMessaging headers) is consumed through the bridge with sensible fields, and a message produced through the
bridge is an ordinary record to a native consumer: same key, same partition as the Java client would choose, native
headers, body untouched.
[durable.default] - **Durable by default**: persistent, replicated as far as the broker is, confirmed, unroutable is
an error, prefetch bounded.
[start.without-broker] - **Start, stop**: the bridge starts without its broker and says so on `/readyz`.
[stop.not-ready] On SIGTERM: not ready → no new pulls or streams
[stop.streams] → streams end cleanly
[stop.in-flight] → produces in flight are answered
[stop.released] → leases released without counting as a failure
[stop.exit] → producer flushed → exit 0, inside the grace period.
[stop.sigkill] SIGKILL loses nothing that was answered 200.

## The window
[window.one] The look-ahead window is one component of the bridge, per group and partition, the same for all adapters:
a heap of due times, a heap of priorities, one queue per messageKey, a heap of leases, the attempts. It is pure (its
clock is passed in) and tested as a state machine with hypothesis. An adapter only fetches into it and settles from
it, and backs its state with what the broker has:
[window.memory] - memory: the log, a cursor and a settled set per group; bounded; the reference for the other two.
Optional journal on disk.
[window.kafka] - Kafka: consumer group offsets; out-of-order acks and attempts live in the commit metadata (lowest
unsettled offset + bitmap), so that a restart does not redeliver what was acknowledged; when the gap outgrows the
metadata, fetching pauses.
[window.rabbitmq] - RabbitMQ: unacknowledged deliveries on a quorum queue with single active consumer;
`x-delivery-count` / `x-acquired-count`.
"""
