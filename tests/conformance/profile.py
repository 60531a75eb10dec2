"""The HTTP profile, sentence by sentence, each with an id. Tests quote these sentences; `test_coverage` counts them."""

from typing import Final

TEXT: Final = """
[profile.holes] The OpenMessaging HTTP binding (2019) names headers and stops there: no paths, no ack request, no
framing for push, no escaping, no error body. This page closes those holes.
[profile.contract] It is the contract that every server, client and test here follows; the project publishes it, in
its own words, as `docs/http-profile.md`.
[profile.binding-wins] Where the binding speaks, the binding wins; where it is silent, this page does.

## Transport
[transport.h2c] - HTTP/2: cleartext with prior knowledge (a sidecar on loopback)
[transport.alpn] and ALPN `h2` under TLS.
[transport.http1] HTTP/1.1 is answered too, so that a plain `curl` works.
[transport.no-upgrade] No `Upgrade: h2c`.
[transport.case] - Field names arrive in lower case over HTTP/2, so every name here is matched case-insensitively and
sent in lower case.
[transport.ports] - Data port 8080, management port 9090
[transport.management] (probes and metrics only, never messages).

## Message headers
[headers.fields] - System and extension fields: `x-oms-h-<field>`, the binding's names, plus the ones the
specification has and the binding forgot: `x-oms-h-partition`, `x-oms-h-deliverycount`, `x-oms-h-qos`.
[headers.properties] - User properties: `x-oms-p-<name>`. A property name is kept exactly:
[headers.escape] every character outside `a-z 0-9 . _ -` travels as `%xx` (UTF-8 bytes), `%` being a legal character
of a field name.
[headers.escape-example] `x-oms-p-OrderId` typed by hand becomes `orderid`; `x-oms-p-%4frder%49d` is `OrderId`.
[headers.ascii] - Values: printable ASCII travels as it is, `%` and spaces too: what a user typed is what a consumer
reads.
[headers.rfc8187] Anything else travels as an RFC 8187 extended value under the name with `*`: `x-oms-p-city*:
UTF-8''Z%C3%BCrich`.
[headers.raw-utf8] Raw bytes outside ASCII are a 400, whose detail shows the extended form.
[headers.untrusted] What a broker hands us is untrusted: CR, LF, NUL and non-ASCII can never break a response.
[headers.repeated] - A repeated `x-oms-*` header is a 400,
[headers.number] so is a number that is not plain digits or is out of its type's range.

[fields.head] | field | type | who sets it on produce | wrong or missing | |---|---|---|---|
[fields.version] | x-oms-version | String, `1.x.y` | client, required | 400 |
[fields.destination] | destination | String, `[A-Za-z0-9._-]{1,249}`, not `.`/`..`, not an internal prefix | client,
required | 400 |
[fields.messageid] | messageId | String | client, else the bridge (UUIDv7) | filled; 400 in strict mode |
[fields.borntimestamp] | bornTimestamp | Long, ms | client, else the bridge | filled; 400 in strict mode |
[fields.bornhost] | bornHost | String | client, else peer address | filled; 400 in strict mode |
[fields.store] | storeTimestamp, storeHost | Long, String | always the bridge; a client's value is replaced | |
[fields.expiretime] | expireTime | Long, epoch ms; `<= bornTimestamp` means "never expires" | client | 400 |
[fields.delaytime] | delayTime | Long >= 0, ms from bornTimestamp | client | 400 |
[fields.priority] | priority | Integer 1..10, default 5; outside the range it is ignored (= 5), as the specification
says | client | ignored |
[fields.partition] | partition | Integer >= 0 | client | 400 when the destination has no such partition |
[fields.text] | messageKey, correlationId, traceId, transactionId | String | client | |
[fields.compression] | compression | `gzip` (the body arrives gzipped; consumers get it inflated unless they accept
gzip) | client | 400 unknown algorithm or corrupt body |
[fields.durability] | durability | 0 or 1 (1 = persisted before the 200) | client, default 1 | 400 |
[fields.qos] | qos | 0 at least once, 1 at most once, 2 exactly once | client, default 0 | 400 |
[fields.deliverycount] | deliveryCount | Integer | the bridge, on delivery; 1 on the first | a client's value is
dropped |

[fields.strict] Strict mode (`binding.strict`) demands every field that the binding marks Required and a client can
know.

## Produce: `POST /v1/messages`
[produce.one] One message: headers + body. `200` means stored as its durability asks.
[produce.reply] The reply carries `x-oms-version`, `x-oms-h-messageid`, `-storetimestamp`, `-storehost`, `-partition`
where there is one, `x-oms-offset` (the backend's own position)
[produce.applied] and `x-oms-applied`, for example `delayTime=emulated,priority=native,partition=ignored`: how each
optional field that the request carried was honoured.
[produce.require] `x-oms-require: delayTime,priority` turns a field that cannot be honoured into a 422, nothing
stored.
[batch.multipart] Batch: the same path with `content-type: multipart/mixed; boundary=…`, each part one message in the
single form,
[batch.json] or `application/json` with an array of messages in the specification's own JSON form (`header`,
`extensionHeader`, `properties`, `data` in base64).
[batch.own] Every message is judged on its own.
[batch.reply] Reply: JSON, one result per message in request order (status, messageId, partition, offset or error);
200 when all were stored, else 207.
[produce.outcomes] Three outcomes, and a client can tell them apart: **stored** (200), **not stored** (every 4xx, and
503 with `x-oms-retry-safe: true`), **unknown** (504, or a broken connection).

## Retries
[retries.first] A message with a messageId, or a request with `idempotency-key`, is stored once: a retry within
`dedup.window` gets the first reply with `x-oms-duplicate: true`.
[retries.body] Another body under the same name is a 422.
[retries.in-flight] A retry of a message that is still being stored waits for it.
[retries.batch] In a batch, the key and the place name each message without a messageId.
[retries.refused] What was refused is not remembered: a retry is stored.

## Transactions
[transaction.prepare] `x-oms-transaction: prepare` stores a message, and no consumer gets it before the commit.
[transaction.commit] `POST /v1/transactions/{transactionId}/commit` makes the messages of a transaction visible, in the
order in which they were prepared, in all their destinations.
[transaction.message] `x-oms-transaction: commit` on a message commits its transaction with it.
[transaction.rollback] `POST /v1/transactions/{transactionId}/rollback` drops them.
[transaction.final] Commit and rollback are final and may be repeated; the other end is then a 409 with the state.
[transaction.race] Of a commit and a rollback at the same time one wins.
[transaction.timeout] A transaction that is open for longer than `x-oms-transaction-timeout` is rolled back.
[transaction.retry] A message with a messageId that was prepared in the transaction before is not prepared again.

## Produce by URL: `POST /v1/destinations/{destination}/messages`
[url.plain] Any body, any content type, no header needed: the body is one message, a batch is payload.
[url.put] `PUT` with the messageId as the last part of the path is for producers with ids of their own.
[url.fields] Each field may be a query parameter with a short name or its header; both with different values are a
400, and so is an unknown parameter.
[url.durations] `delay` and `expire` are durations with a unit: `500ms`, `5s`, `2m`, `1h`, `7d`.
[url.reply] The reply has the headers of a produce, and the same as a JSON body.
[url.origin] A web page of another origin cannot produce there, though it needs no `x-oms-` header.

## Pull: `GET /v1/messages`
[pull.headers] Request headers: `x-oms-version`, `x-oms-consumerid` (the consumer group), `x-oms-source`, `x-oms-ack`
(default false),
[pull.wait] `x-oms-waitmills` (long poll, default 0, capped at 55 s).
[pull.lease] Ours: `x-oms-leasemills` (how long the message is mine, default 30 s),
[pull.receipt] `x-oms-receipt` (acknowledge the previous message in the same round trip),
[pull.requestid] `x-oms-requestid` (a repeated pull with the same id returns the same message while its lease lives,
so a lost response loses nothing).
[pull.reply] Replies: `200` with one message in the produce form plus `x-oms-h-deliverycount`, and under `x-oms-ack:
true` also `x-oms-receipt` and `x-oms-leaseuntil`;
[pull.none] `204` when there is none.
[pull.cheap] A waiting pull costs no thread.
[pull.settled] Without ack the message is settled before it is sent (at most once);
[pull.with-ack] with ack it is settled only by an ack (at least once).
[pull.parameters] Every request header of pull and push may also come as a query parameter without the `x-oms-` prefix
(`?version=1.0.0&source=orders&consumerid=app&ack=true`), because a browser's `EventSource` cannot set headers;
[pull.header-wins] a header wins, both with different values is a 400.
[pull.origin] Cross-origin requests are refused unless the settings name the origin.

## Settle: `POST /v1/ack`, `POST /v1/nack`, `POST /v1/extend`
[settle.receipts] `x-oms-receipt` (one, or several separated by commas).
[settle.parameters] `nack` takes `x-oms-delaymills`, `extend` takes `x-oms-leasemills`.
[settle.twice] `204` when done; acknowledging twice is 204;
[settle.ended] a receipt whose lease ended is `410`, and the message may be delivered again.
[settle.dead-letter] After `max_deliveries` (default 16) a message goes to the dead-letter destination
`<destination>.dlq` with properties for the reason, the source and the count;
[settle.confirmed] the original is settled only after that write is confirmed.

## Push: `GET /v1/push`
[push.many] Many messages on one response, with the pull headers
[push.credit] and `x-oms-credit` (unacknowledged messages allowed, default 64),
[push.maxmessages] `x-oms-maxmessages`,
[push.waitmills] `x-oms-waitmills` (end after this much silence; absent: stay open).
[push.accept] `Accept` chooses the framing: `multipart/mixed` (default: each part is one message in the produce form,
streamed), `application/x-ndjson`, or `text/event-stream`.
[push.leases] Leases renew while the stream lives;
[push.back] when it ends, what was not acknowledged goes back at once.
[push.pressure] The HTTP/2 window is the back-pressure: a reader that stops reading stops the bridge from fetching.

## Callback push: `POST /v1/push` with `x-oms-callbackurl`
[callback.register] Registers (source, consumerId) → URL;
[callback.stop] an empty value stops it;
[callback.list] `GET /v1/callbacks` lists them.
[callback.form] The bridge POSTs each message in the produce form;
[callback.ack] 2xx acknowledges,
[callback.gone] 410 stops the callback,
[callback.pause] 429/503 with `retry-after` slow it down,
[callback.retry] anything else retries with exponential backoff and jitter, then dead letter.
[callback.signed] Signed as Standard Webhooks says (`webhook-id`, `-timestamp`, `-signature`).
[callback.off] Off until the configuration lists the allowed targets;
[callback.vetted] every resolved address is vetted and that address dialled.

## CloudEvents
[events.in] Produce takes CloudEvents 1.0 in binary, structured and batched mode: `id`, `time` and `partitionkey` are
messageId, bornTimestamp and messageKey, other attributes are properties of the same name.
[events.refused] What is no event, or what no message can hold, is a 400.
[events.out] Pull, push and callbacks send each message as an event if `accept` asks for it, also one that was not
produced as such.

## Everything else
[rest.capabilities] - `GET /v1/capabilities`: per backend and destination, each field: native, emulated or
unsupported.
[rest.documents] - `GET /openapi.json`, `GET /asyncapi.json`, `GET /docs`.
[rest.management] Management port: `/livez`, `/readyz` (says why not), `/metrics` (Prometheus), `/status`.
[rest.errors] - Errors: `application/problem+json` (RFC 9457) with a stable `code`, repeated in `x-oms-error`;
[rest.retry-after] `retry-after` on 429 and 503.
[rest.limits] - Limits, each configurable, each with its own code: body 4 MiB (413), headers 32 KiB (431),
[rest.load] messages in flight (503), per destination quotas (429).
"""
