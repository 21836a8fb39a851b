// Keys, values and headers as people read them: JSON in colours, text, or bytes.

import { h } from "./dom.js";
import * as format from "./format.js";

const MARKS = { string: "j-string", number: "j-number", boolean: "j-word", object: "j-word" };

/** One line for a list. */
export function preview(part, length = 160) {
  if (!part || part.kind === "null") return h("span.badge", "null");
  const text = part.kind === "binary" ? (part.text.match(/../g) ?? []).slice(0, 24).join(" ") : part.text;
  return h("span.mono", { class: part.kind === "binary" ? "muted" : "" }, format.shortened(text.replace(/\s+/g, " "), length));
}

/** All of it, as `view` says: json, text or hex. */
export function body(part, view) {
  if (!part || part.kind === "null") return h("p.muted", "null: there are no bytes");
  const cut = part.cut && h("p.muted", `The first part of ${format.bytes(part.bytes)}; the record's own page shows up to 4 MiB.`);
  if (view === "hex") return [cut, hexDump(part)];
  if (view === "json" && part.json !== undefined) return [cut, h("pre.json", jsonNodes(part.json, 0))];
  if (part.kind === "binary") return [cut, hexDump(part)];
  return [cut, h("pre", part.text)];
}

/** The views that this part can be shown in, the best first. */
export function views(part) {
  if (!part || part.kind === "null") return [];
  if (part.kind === "binary") return ["hex"];
  return part.json === undefined ? ["text", "hex"] : ["json", "text", "hex"];
}

function jsonNodes(value, depth) {
  const pad = "  ".repeat(depth + 1);
  const end = "  ".repeat(depth);
  if (Array.isArray(value)) {
    if (!value.length) return ["[]"];
    return ["[\n", value.map((each, at) => [pad, ...jsonNodes(each, depth + 1), at < value.length - 1 ? ",\n" : "\n"]), end, "]"];
  }
  if (value && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return ["{}"];
    return ["{\n", entries.map(([name, each], at) => [pad, h("span.j-name", JSON.stringify(name)), ": ", ...jsonNodes(each, depth + 1), at < entries.length - 1 ? ",\n" : "\n"]), end, "}"];
  }
  return [h(`span.${MARKS[typeof value]}`, JSON.stringify(value))];
}

function bytesOf(part) {
  if (part.kind !== "binary") return new TextEncoder().encode(part.text);
  return Uint8Array.from(part.text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

const DUMP_LIMIT = 64 * 1024;

/** Offset, sixteen bytes, and what of them can be printed. */
function hexDump(part) {
  const all = bytesOf(part);
  const bytes = all.slice(0, DUMP_LIMIT);
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${text}`);
  }
  return [
    bytes.length < all.length && h("p.muted", `The first ${format.bytes(DUMP_LIMIT)} of ${format.bytes(all.length)}.`),
    h("pre.hex", lines.join("\n")),
  ];
}

/** The record as one would write it down: for copying. */
export function asJson(record) {
  const plain = (part) => (!part || part.kind === "null" ? null : part.json ?? part.text);
  return JSON.stringify({
    partition: record.partition, offset: record.offset, timestamp_ms: record.timestamp_ms,
    key: plain(record.key), value: plain(record.value), headers: record.headers.map((each) => [each.name, plain(each.value)]),
  }, null, 2);
}
