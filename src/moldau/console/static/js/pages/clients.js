// Clients: the members of all groups, and what brokers measure of their connections.

import { get, path } from "../api.js";
import { empty, head, words } from "../components.js";
import { append, h, replace } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable, serverTable } from "../table.js";

export async function clientsPage({ root, query, signal, crumbs, every }) {
  crumbs([["Clients"]]);
  const notes = h("div.stack.muted");
  const metrics = h("div");
  const table = serverTable({
    caption: "Clients", noun: "client", query, filterLabel: "Filter by client id, host or group", keyOf: (row) => `${row.group} ${row.client_id} ${row.host} ${row.instance_id ?? ""}`,
    load: async (choice) => {
      const data = await get(path("/api/clients", {}, choice), { signal });
      replace(notes, (data.notes ?? []).map((note) => h("p", words(note))));
      replace(metrics, data.metrics?.length ? metricsCard(data.metrics) : null);
      return data;
    },
    empty: () => empty("No client is known", h("p", "Members of groups appear here as soon as they join.")),
    columns: [
      { label: "Client id", sort: "client_id", render: (row) => h("span.mono", row.client_id || format.NOTHING) },
      { label: "Host", sort: "host", render: (row) => row.host ?? format.NOTHING },
      { label: "Group", sort: "group", render: (row) => h("a", { href: link("groups", row.group) }, row.group) },
      { label: "Protocol", render: (row) => row.protocol ?? format.NOTHING },
      { label: "Static id", render: (row) => row.instance_id ?? format.NOTHING },
      { label: "Partitions", sort: "partitions", num: true, render: (row) => format.count(row.partitions) },
    ],
  });
  append(root, [head("Clients", { about: "Who is connected, as far as the cluster tells." }), table.element, metrics, notes]);
  await table.refresh();
  every(5, table.refresh);
}

function metricsCard(rows) {
  return h("section.card.flush", h("header", h("h2", "What the brokers measure")), plainTable({
    caption: "Metrics of clients", rows: rows.slice(0, 200), keyOf: (row) => `${row.name} ${JSON.stringify(row.labels)}`,
    columns: [
      { label: "Metric", render: (row) => h("span.mono", row.name) },
      { label: "Labels", render: (row) => h("span.mono.muted", Object.entries(row.labels).map(([name, value]) => `${name}=${value}`).join(", ") || format.NOTHING) },
      { label: "Value", num: true, render: (row) => format.short(row.value) },
    ],
  }));
}
