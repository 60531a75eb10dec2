// A held request, and beside it faulty ones on the same connection. Prints how each ended, as JSON.
import http2 from "node:http2";

const session = http2.connect(`http://127.0.0.1:${process.argv[2]}`);
const ends = {};

function ask(name, headers, send) {
  return new Promise((resolve) => {
    const stream = session.request(headers);
    let status;
    stream.on("response", (response) => { status = response[":status"]; });
    stream.on("error", () => {});
    stream.on("close", () => { ends[name] = status ?? `reset ${stream.rstCode}`; resolve(); });
    stream.resume();
    send(stream);
  });
}

session.on("error", () => {});
session.on("goaway", (code) => { ends.goaway = code; });
const held = ask("held", { ":path": "/hold" }, (stream) => stream.end());
const post = { ":path": "/size", ":method": "POST" };
await ask("too long", { ...post, "content-length": "1" }, (stream) => stream.end("hello"));
await ask("too short", { ...post, "content-length": "9" }, (stream) => stream.end("hello"));
await ask("reset", post, (stream) => { stream.write("half"); setTimeout(() => stream.close(8), 50); });
await ask("destroyed", post, (stream) => { stream.write("half"); setTimeout(() => stream.destroy(), 50); });
await ask("good", post, (stream) => stream.end("hello"));
console.log("ready");
await held;
console.log(JSON.stringify(ends));
session.close();
