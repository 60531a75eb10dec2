// Pulls so many messages with fetch, and prints each as a line of JSON.
const [url, count] = process.argv.slice(2);
for (let number = 0; number < Number(count); number++) {
  const pulled = await fetch(url);
  const body = Buffer.from(await pulled.arrayBuffer()).toString("base64");
  console.log(JSON.stringify({ status: pulled.status, headers: Object.fromEntries(pulled.headers), body }));
}
