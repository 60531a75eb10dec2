// As Node's program in docs/other-clients.md, over HTTP/2.
import { once } from "node:events";
import { connect } from "node:http2";
import { text } from "node:stream/consumers";

const session = connect("http://127.0.0.1:8080");

async function ask(method, path, headers, body) {
  const request = { ":method": method, ":path": path, "x-oms-version": "1.0.0", ...headers };
  const stream = session.request(request).end(body);
  const [head] = await once(stream, "response");
  if (head[":status"] >= 300) throw new Error(await text(stream));
  return [head, stream];
}

const json = { "content-type": "application/json" };
await ask("POST", "/v1/destinations/orders/messages?key=customer-12", json, '{"order":4711}');

const [head, body] = await ask("GET", "/v1/messages?source=orders&consumerid=billing&ack=true&waitmills=10000");
if (head[":status"] === 200) {
  console.log(await text(body));
  await ask("POST", "/v1/ack", { "x-oms-receipt": head["x-oms-receipt"] });
}

const ndjson = { accept: "application/x-ndjson" };
const [, pushed] = await ask("GET", "/v1/push?source=orders&consumerid=audit&maxmessages=1", ndjson);
for await (const piece of pushed.setEncoding("utf8")) process.stdout.write(piece);
session.destroy();
