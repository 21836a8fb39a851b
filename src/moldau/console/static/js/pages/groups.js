// Groups: who reads, and how far behind they are; the furthest behind first.

import { get, path } from "../api.js";
import { badge, empty, head, state } from "../components.js";
import { spark } from "../charts.js";
import { append, h } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { serverTable } from "../table.js";

const DIRECTIONS = { growing: ["↗", "growing", "warn-text"], shrinking: ["↘", "shrinking", "ok-text"], steady: ["→", "steady", "muted"] };

/** An arrow for the eye, a word for the ear. */
export function direction(name) {
  const [arrow, word, kind] = DIRECTIONS[name] ?? ["", "", ""];
  return arrow ? h("span.arrow", { class: kind, title: word }, h("span", { "aria-hidden": "true" }, arrow), h("span.hidden-text", word)) : null;
}

export async function groupsPage({ root, query, signal, crumbs, every }) {
  crumbs([["Groups"]]);
  const table = serverTable({
    caption: "Groups", noun: "group", query, filterLabel: "Filter groups by name", keyOf: (row) => row.group,
    load: (choice) => get(path("/api/groups", {}, choice), { signal }),
    empty: () => empty("No groups yet", h("p", "A group shares the partitions of a topic among its consumers, and remembers how far it has read."),
      h("p", "Start one in a terminal: ", h("code", "moldau consume orders --group billing"), ", or try it on the page ", h("a", { href: "/learn" }, "Learn"), ".")),
    columns: [
      { label: "Group", sort: "group", render: (row) => h("span.row", h("a", { href: link("groups", row.group) }, row.group), row.micro_batch_ids && badge("Spark")) },
      { label: "State", sort: "state", render: (row) => state(row.state) },
      { label: "Type", sort: "type", class: "nowrap", render: (row) => row.type ?? format.NOTHING },
      { label: "Members", sort: "members", num: true, render: (row) => format.count(row.members) },
      { label: "Topics", sort: "topics", num: true, render: (row) => format.count(row.topics) },
      { label: "Lag in records", sort: "lag", num: true, wide: true, render: (row) => h("span.with-spark", spark(row.trend, "Lag"), direction(row.direction), h("span.fixed", format.count(row.lag))) },
      { label: "Lag in time", sort: "lag_seconds", num: true, render: (row) => h("span", { class: row.lag_seconds > 60 ? "warn-text" : "" }, format.age(row)) },
    ],
  });
  append(root, [head("Groups", { about: "The furthest behind first. Lag in time is the age of the next record that a group has not read." }), table.element]);
  await table.refresh();
  every(3, table.refresh);
}
