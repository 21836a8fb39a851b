// Clients: the members of all groups, what clients measure and push to the cluster, and what brokers measure of their connections.

import { get, path } from "../api.js";
import { badge, empty, figures, head, words } from "../components.js";
import { append, h, replace } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable, serverTable } from "../table.js";

export async function clientsPage({ root, query, signal, crumbs, every }) {
  crumbs([["Clients"]]);
  const notes = h("div.stack.muted");
  const metrics = h("div");
  const members = membersTable(query, signal, (data) => {
    replace(notes, (data.notes ?? []).map((note) => h("p", words(note))));
    replace(metrics, data.metrics?.length ? metricsCard(data.metrics) : null);
  });
  const asked = h("div");
  const pushing = pushingTable(query, signal, (data) => replace(asked, askedFor(data)));
  append(root, [
    head("Clients", { about: "Who is connected, as far as the cluster tells." }),
    h("h2", "Members of groups"), members.element,
    h("h2", "What clients measure"), pushing.element, asked,
    metrics, notes,
  ]);
  await Promise.all([members.refresh(), pushing.refresh()]);
  every(5, () => Promise.all([members.refresh(), pushing.refresh()]));
}

function membersTable(query, signal, seen) {
  return serverTable({
    caption: "Members of groups", noun: "member", query, filterLabel: "Filter by client id, host or group", keyOf: (row) => `${row.group} ${row.client_id} ${row.host} ${row.instance_id ?? ""}`,
    load: async (choice) => {
      const data = await get(path("/api/clients", {}, choice), { signal });
      seen(data);
      return data;
    },
    empty: () => empty("No client is a member of a group", h("p", "Members appear here as soon as they join.")),
    columns: [
      { label: "Client id", sort: "client_id", render: (row) => h("span.mono", row.client_id || format.NOTHING) },
      { label: "Software", sort: "software", whole: true, optional: true, render: (row) => (row.software && row.pushes_as ? h("a", { href: link("clients", row.pushes_as) }, row.software) : row.software ?? format.NOTHING) },
      { label: "Host", sort: "host", render: (row) => row.host ?? format.NOTHING },
      { label: "Group", sort: "group", render: (row) => h("a", { href: link("groups", row.group) }, row.group) },
      { label: "Protocol", render: (row) => row.protocol ?? format.NOTHING },
      { label: "Static id", optional: true, render: (row) => row.instance_id ?? format.NOTHING },
      { label: "Partitions", sort: "partitions", num: true, render: (row) => format.count(row.partitions) },
    ],
  });
}

function pushingTable(query, signal, seen) {
  let why = [];
  return serverTable({
    caption: "Clients that push what they measure", noun: "client", query, prefix: "push-", filterLabel: "Filter by client id, host or software", keyOf: (row) => row.instance_id,
    load: async (choice) => {
      const data = await get(path("/api/telemetry", {}, choice), { signal });
      why = data.empty;
      seen(data);
      return data;
    },
    empty: () => empty("No client pushes what it measures", why.map((sentence) => h("p.prose", words(sentence)))),
    columns: [
      { label: "Client id", sort: "client_id", render: (row) => h("a.mono", { href: link("clients", row.instance_id) }, row.client_id || row.instance_id) },
      { label: "Software", sort: "software", whole: true, render: (row) => row.software ?? format.NOTHING },
      { label: "Kind", sort: "kind", render: (row) => (row.kind ? badge(row.kind) : format.NOTHING) },
      { label: "Host", sort: "host", render: (row) => row.host ?? format.NOTHING },
      { label: "Slowest node", sort: "latency_ms", num: true, optional: true, render: (row) => format.milliseconds(row.latency_ms) },
      { label: "Values", sort: "values", num: true, render: (row) => format.count(row.values) },
    ],
  });
}

/** Which metrics the cluster asks clients for. */
function askedFor(data) {
  const notes = data.notes.map((note) => h("p.muted", words(note)));
  if (!data.subscriptions.length) return notes;
  return h("section.card.flush", h("header", h("h2", "What clients are asked for")), notes, plainTable({
    caption: "Client metrics resources", rows: data.subscriptions, keyOf: (row) => row.name,
    columns: [
      { label: "Name", render: (row) => row.name },
      { label: "Metrics", render: (row) => h("span.mono", row.metrics || "none") },
      { label: "Clients", render: (row) => (row.match ? h("span.mono", row.match) : "all") },
      { label: "Every", num: true, render: (row) => (row.interval_ms === null ? format.NOTHING : format.milliseconds(row.interval_ms)) },
    ],
  }));
}

/** What each broker counts of its clients: connections by listener, and bytes since it runs. */
function metricsCard(samples) {
  const brokers = new Map();
  for (const { name, labels, value } of samples) {
    const row = brokers.get(labels.address) ?? { address: labels.address, connections: [], written: null, read: null };
    brokers.set(labels.address, row);
    if (name.endsWith("connection_count")) row.connections.push(`${labels.listener ?? "all"} ${format.count(value)}`);
    else if (name.includes("bytesin")) row.written = (row.written ?? 0) + value;
    else row.read = (row.read ?? 0) + value;
  }
  return h("section.card.flush", h("header", h("h2", "What the brokers measure")), plainTable({
    caption: "Metrics of brokers", rows: [...brokers.values()], keyOf: (row) => row.address,
    columns: [
      { label: "Metrics of", render: (row) => h("span.mono", hostOf(row.address)) },
      { label: "Connections", whole: true, render: (row) => row.connections.join(", ") || format.NOTHING },
      { label: "Written", num: true, render: (row) => format.bytes(row.written) },
      { label: "Read by clients", num: true, render: (row) => format.bytes(row.read) },
    ],
  }));
}

function hostOf(address) {
  return URL.canParse(address) ? new URL(address).host : address;
}

/** One client that pushes: all that it measures. */
export async function clientPage({ root, params, query, signal, crumbs, every }) {
  const { instance } = params;
  crumbs([["Clients", "/clients"], [instance]]);
  const about = h("div.stack");
  const table = serverTable({
    caption: "What the client measures", noun: "value", query, filterLabel: "Filter by metric or label", keyOf: (row) => `${row.name} ${row.labels}`,
    load: (choice) => get(path("/api/telemetry/{instance}", { instance }, choice), { signal }).then((data) => {
      draw(data.client);
      return data;
    }),
    empty: () => empty("It pushed nothing"),
    columns: [
      { label: "Metric", sort: "name", render: (row) => h("span.mono", { title: `moldau_client_${row.name}` }, row.name) },
      { label: "Labels", sort: "labels", whole: true, optional: true, render: (row) => (row.labels ? h("span.mono.muted", row.labels) : format.NOTHING) },
      { label: "Value", sort: "value", num: true, render: (row) => format.measured(row.value) },
    ],
  });

  function draw(client) {
    crumbs([["Clients", "/clients"], [client.client_id || instance]]);
    replace(about, head(client.client_id || instance, { badges: [client.kind && badge(client.kind)], about: `Client instance ${instance}. What it measured itself, and pushed last.` }), figures([
      ["Software", client.software ?? format.NOTHING, null, "text"], ["Host", client.host ?? format.NOTHING, null, "text"],
      client.latency_ms !== null && ["Slowest node", format.milliseconds(client.latency_ms), "mean time of a request"], ["Values", format.count(client.values)],
    ]));
  }

  draw((await get(path("/api/telemetry/{instance}", { instance }, { size: 1 }), { signal })).client);
  append(root, [about, table.element]);
  await table.refresh();
  every(5, table.refresh);
}
