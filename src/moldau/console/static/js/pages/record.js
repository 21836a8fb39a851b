// One record, with an address of its own; and the view of a record that the list unfolds.

import { get, path } from "../api.js";
import { button, card, copyText, figures, notice, pairs } from "../components.js";
import { append, h, replace } from "../dom.js";
import * as format from "../format.js";
import { asJson, body, views } from "../payload.js";
import { link } from "../router.js";
import { tellError, toast } from "../toast.js";
import { topicCrumbs, topicHead, viewOf } from "./topic.js";
import { produceDialog } from "./produce.js";

export function recordAddress(topic, record) {
  return link("topics", topic, "records", record.partition, record.offset);
}

export async function recordPage({ root, params, signal, crumbs, go, may }) {
  const { topic, partition, offset } = params;
  topicCrumbs(crumbs, topic, ["Records", link("topics", topic, "records")], [`${partition} / ${offset}`]);
  const [answer, view] = await Promise.all([get(path("/api/topics/{topic}/records/{partition}/{offset}", params), { signal }), viewOf(topic, signal)]);
  const { record } = answer;
  const to = (other) => link("topics", topic, "records", partition, other);
  append(root, topicHead(topic, "records", {
    view, about: `Partition ${partition}, offset ${format.count(record.offset)}`,
    actions: [
      answer.previous !== null && h("a.button", { href: to(answer.previous), rel: "prev" }, "← Earlier"),
      answer.next !== null && h("a.button", { href: to(answer.next), rel: "next" }, "Later →"),
      may && !view && button("Send again …", () => produceDialog(topic, go, record)),
    ],
  }));
  append(root, [
    figures([
      ["Time", format.moment(record.timestamp_ms, { exact: true }), record.timestamp_type === "append" ? "when the broker wrote it" : "when it was made", "text"],
      ["Size", format.bytes(record.size_bytes)],
      ["Headers", record.headers_cut ? `more than ${format.count(record.headers.length)}` : format.count(record.headers.length)],
    ]),
    recordBody(topic, record),
  ]);
}

/** Key, value and headers with their views, and what can be copied. */
export function recordBody(topic, record) {
  return h("div.stack",
    record.dead_letter && deadLetterNotice(record.dead_letter),
    partCard("Value", record.value),
    h("div.grid", partCard("Key", record.key), headerCard(record)),
    h("div.row",
      button("Copy as JSON", () => copied(asJson(record)), { iconName: "copy", kind: "small" }),
      record.value.kind !== "null" && button("Copy value", () => copied(record.value.text), { iconName: "copy", kind: "small" }),
      button("Copy link", () => copied(location.origin + recordAddress(topic, record)), { iconName: "link", kind: "small" })));
}

/** Why it is a dead letter, and where it was read. */
function deadLetterNotice({ reason, topic, partition, offset, written_by: by, deliveries }) {
  const isPlaceKnown = topic !== null && partition !== null && offset !== null;
  return notice("warn", "Dead letter", reason, (topic || by) && h("div.muted",
    by && ["Written by ", by, topic && ", "], topic && [by ? "read from " : "Read from ", isPlaceKnown
      ? h("a", { href: recordAddress(topic, { partition, offset }) }, `${topic}, partition ${partition}, offset ${format.count(offset)}`)
      : h("a", { href: link("topics", topic, "records") }, topic)], deliveries !== null && `, delivered ${format.times(deliveries)}`));
}

async function copied(text) {
  try {
    await copyText(text);
    toast("Copied", { kind: "ok" });
  } catch {
    tellError(new Error("The browser does not let this page copy. Select the text, and copy it."));
  }
}

function partCard(title, part) {
  const choices = views(part);
  const shown = h("div.payload");
  const buttons = choices.map((view) => h("button.small", { type: "button", onclick: () => choose(view) }, { json: "JSON", text: "Text", hex: "Bytes" }[view]));
  function choose(view) {
    replace(shown, body(part, view));
    buttons.forEach((each, at) => each.setAttribute("aria-pressed", String(choices[at] === view)));
  }
  choose(choices[0]);
  const size = part && part.kind !== "null" ? h("span.muted", format.bytes(part.bytes)) : null;
  return card(h("h3", title, " ", size), h("div.row", { hidden: choices.length < 2, role: "group", "aria-label": `${title} as` }, buttons), shown);
}

function headerCard({ headers, headers_cut: isCut }) {
  if (!headers.length) return card(h("h3", "Headers"), h("p.muted", "None"));
  return card(h("h3", "Headers"), pairs(headers.map((each) => [h("span.mono", each.name), h("span.mono", each.value.kind === "null" ? "null" : each.value.text)])),
    isCut && h("p.muted", `Only the first ${format.count(headers.length)}.`));
}

