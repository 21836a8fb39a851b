// Produce one record, or send one again.

import { path, post } from "../api.js";
import { h } from "../dom.js";
import { dialog, field, select } from "../dialog.js";
import { link } from "../router.js";
import { toast } from "../toast.js";

const ENCODINGS = [["text", "Text"], ["hex", "Hexadecimal"], ["base64", "Base64"]];

export async function produceDialog(topic, go, like = null) {
  const encodingOf = (part) => (part?.kind === "binary" ? "hex" : "text");
  const textOf = (part) => (!part || part.kind === "null" ? "" : part.text);
  const headers = like?.headers ?? [];
  const written = headers.filter(isWritable);
  const others = headers.filter((each) => !isWritable(each));
  const isNull = (part) => like !== null && (!part || part.kind === "null");
  const emptyKey = like !== null && !isNull(like.key) && like.key.text === "" ? "" : null; // what an empty field means
  const done = await dialog({
    title: `Produce to ${topic}`, action: "Produce", wide: true,
    body: () => [
      h("div.fields",
        field("Key", h("input", { name: "key", value: textOf(like?.key), spellcheck: "false", placeholder: emptyKey === null ? "none" : "empty" })),
        field("Key is", select("key_encoding", ENCODINGS, encodingOf(like?.key))),
        field("Partition", h("input", { name: "partition", type: "number", min: "0", placeholder: "by key" })),
        field("Acknowledged by", select("acks", [["all", "all in-sync replicas"], ["1", "the leader (1)"], ["0", "nobody (0)"]], "all"))),
      field("Value", h("textarea", { name: "value", rows: "8", spellcheck: "false" }, textOf(like?.value))),
      h("div.row",
        h("label.check", "Value is", select("value_encoding", ENCODINGS, encodingOf(like?.value))),
        h("label.check", h("input", { type: "checkbox", name: "tombstone", checked: isNull(like?.value) }), "null (a tombstone: deletes the key in a compacted topic)")),
      field("Headers", h("textarea.low", { name: "headers", rows: "2", spellcheck: "false" }, written.map((each) => `${each.name}: ${textOf(each.value)}`).join("\n")), { hint: "One per line, name: value" }),
      others.length > 0 && h("label.check", h("input", { type: "checkbox", name: "others", checked: true }), `Also the headers that cannot be written as a line, as they are: ${others.map((each) => each.name).join(", ")}`),
      like?.headers_cut && h("p.warn-text", "The record has more headers, which are left out."),
    ],
    submit: (data) => post(path("/api/topics/{topic}/records", { topic }), {
      key: data.get("key") === "" ? emptyKey : data.get("key"), key_encoding: data.get("key_encoding"),
      value: data.get("tombstone") ? null : data.get("value"), value_encoding: data.get("value_encoding"),
      partition: data.get("partition") === "" ? null : Number(data.get("partition")), acks: data.get("acks"),
      headers: [...headersOf(data.get("headers")), ...(data.get("others") ? others.map(asItIs) : [])], timestamp_ms: null,
    }),
  });
  if (!done) return null;
  const where = done.offset === null ? "nobody acknowledged it, so its offset is not known" : `partition ${done.partition}, offset ${done.offset}`;
  const note = toast(`Produced: ${where}`, { kind: "ok" });
  if (done.offset !== null) note.children[1].append(h("a", { href: link("topics", topic, "records", done.partition, done.offset) }, "Show it"));
  return done;
}

/** Whether a line says all of a header: not null, not bytes, nothing that would be trimmed. */
function isWritable({ name, value }) {
  const line = (text) => text === text.trim() && !/[\r\n]/.test(text);
  return name !== "" && line(name) && !name.includes(":") && value.kind !== "null" && value.kind !== "binary" && line(value.text);
}

function asItIs({ name, value }) {
  return value.kind === "null" ? [name, null] : [name, value.text, value.kind === "binary" ? "hex" : "text"];
}

function headersOf(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`A header is written name: value; this line is not: ${line}`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}
