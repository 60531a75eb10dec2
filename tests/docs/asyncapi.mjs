// Prints what the official parser finds in the AsyncAPI document on standard input: [[severity, code, message, path], …].
import { Parser } from "@asyncapi/parser";

let text = "";
for await (const piece of process.stdin) text += piece;
const { diagnostics } = await new Parser().parse(text);
console.log(JSON.stringify(diagnostics.map((each) => [each.severity, each.code, each.message, each.path.join(".")])));
