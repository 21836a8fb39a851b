// Topics: what there is, how much runs through it, who reads it and how far behind.

import { get, path, post } from "../api.js";
import { badge, button, empty, head, lag } from "../components.js";
import { spark } from "../charts.js";
import { append, h } from "../dom.js";
import { dialog, field } from "../dialog.js";
import * as format from "../format.js";
import { link, setQuery } from "../router.js";
import { serverTable } from "../table.js";
import { toast } from "../toast.js";

export async function topicsPage({ root, query, signal, crumbs, every, go, may }) {
  crumbs([["Topics"]]);
  const create = () => createTopic(go);
  const internal = h("input", { type: "checkbox", checked: query.get("internal") === "true" });
  internal.addEventListener("change", () => {
    setQuery({ internal: internal.checked });
    table.change({ page: 1 });
  });
  const table = serverTable({
    caption: "Topics", noun: "topic", query, filterLabel: "Filter topics by name", keyOf: (row) => row.name, columns: COLUMNS,
    load: (choice) => get(path("/api/topics", {}, { ...choice, internal: internal.checked }), { signal }),
    empty: () => empty("No topics yet", h("p", "A topic is a named log that producers write and consumers read."),
      may && button("Create a topic", create, { kind: "primary" }), h("p", "or in a terminal: ", h("code", "moldau topic create orders --partitions 3"))),
    extras: [h("label.check", internal, "Internal topics"), h("span.grow"), may && button("Create topic", create, { kind: "primary", iconName: "plus" })],
  });
  append(root, [head("Topics", { about: "What runs through each, who reads it, and how far behind." }), table.element]);
  await table.refresh();
  every(3, table.refresh);
}

const COLUMNS = [
  { label: "Topic", sort: "name", render: (row) => h("span.row", h("a", { href: link("topics", row.name) }, row.name), row.internal && badge("internal"), viewBadges(row.view), ...troubles(row)) },
  { label: "Partitions", sort: "partitions", num: true, render: (row) => format.count(row.partitions) },
  { label: "Replicas", sort: "replicas", num: true, render: (row) => format.count(row.replicas) },
  { label: "Records", sort: "records", num: true, render: (row) => format.count(row.records) },
  { label: "Size", sort: "size_bytes", num: true, render: (row) => format.bytes(row.size_bytes) },
  { label: "Rate", sort: "records_per_second", num: true, wide: true, render: (row) => h("span.with-spark", spark(row.trend, "Records per second"), h("span.fixed", format.rate(row.records_per_second))) },
  { label: "Readers", sort: "groups", wide: true, render: readers },
  { label: "Lag", sort: "lag", num: true, render: (row) => (row.groups === 0 ? h("span.muted", "no group") : lag(row)) },
];

/** What says that a topic is a view, for the heading and for lists. */
export function viewBadges(view) {
  return view && [h("span.badge.accent", "view of ", view.source_deleted ? view.from : h("a", { href: link("topics", view.from) }, view.from)), view.source_deleted && badge("source deleted", "bad")];
}

export function troubles(row) {
  return [
    row.without_leader > 0 && badge(`${row.without_leader} offline`, "bad"),
    row.under_replicated > 0 && badge(`${row.under_replicated} under-replicated`, "warn"),
  ];
}

function readers(row) {
  if (!row.groups) return h("span.muted", format.NOTHING);
  const shown = row.readers.slice(0, 2);
  return h("span.readers", shown.map((reader, at) => [at > 0 && ", ", h("a", { href: link("groups", reader.group), title: `lag ${format.count(reader.lag)}` }, format.shortened(reader.group))]),
    row.groups > shown.length && h("span.muted", ` and ${row.groups - shown.length} more`));
}

async function createTopic(go) {
  const configs = h("textarea", { name: "configs", rows: "3", placeholder: "retention.ms=86400000\ncleanup.policy=compact", spellcheck: "false" });
  const made = await dialog({
    title: "Create a topic", action: "Create topic",
    body: () => [
      field("Name", h("input", { name: "name", required: true, maxlength: "249", autocomplete: "off", spellcheck: "false" }), { hint: "Letters, digits, dots, dashes and underscores." }),
      h("div.fields",
        field("Partitions", h("input", { name: "partitions", type: "number", min: "1", placeholder: "broker's default" })),
        field("Replicas", h("input", { name: "replicas", type: "number", min: "1", placeholder: "broker's default" }))),
      field("Settings", configs, { hint: "One per line: name=value. The rest are the broker's defaults." }),
    ],
    submit: async (data) => {
      const name = data.get("name").trim();
      const answer = await post("/api/topics", {
        name, partitions: numberOf(data.get("partitions")), replication_factor: numberOf(data.get("replicas")), configs: settingsOf(data.get("configs")),
      });
      toast(answer.message, { kind: "ok" });
      return name;
    },
  });
  if (made) go(link("topics", made));
}

function numberOf(text) {
  return text === "" || text === null ? null : Number(text);
}

/** name=value lines as an object; a line without = is an error in words. */
export function settingsOf(text) {
  const settings = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`A setting is written name=value; this line is not: ${line}`);
    settings[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return settings;
}
