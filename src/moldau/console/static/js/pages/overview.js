// Overview: is the cluster well, what runs through it, and what to do if it is not.

import { get } from "../api.js";
import { badge, brokerState, card, empty, figures, head, lag, notice, words } from "../components.js";
import { lineChart, meter } from "../charts.js";
import { append, h, replace } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable } from "../table.js";

const NAMES_SHOWN = 12;
const KINDS = { error: "bad", warning: "warn", info: "info" };

export async function overviewPage({ root, signal, crumbs, live }) {
  crumbs([["Overview"]]);
  const health = h("div.stack", { "aria-live": "polite" });
  const numbers = h("div");
  const records = lineChart({ label: "Records written per second", show: format.rate });
  const lags = lineChart({ label: "Lag of all groups, in records" });
  const sizes = lineChart({ label: "Size of all logs", show: format.bytes, base: 1024 });
  const brokers = h("div");
  let told = "";

  function draw(data) {
    const problems = JSON.stringify([data.problems, data.read_error]);
    if (problems !== told) replace(health, healthOf(data)); // only then: screen readers say what changed
    told = problems;
    const alive = data.brokers.filter((broker) => broker.alive).length;
    replace(numbers, figures([
      ["Brokers", alive === data.brokers.length ? format.count(alive) : `${alive} of ${data.brokers.length}`, data.controller_id === null ? null : `controller: ${data.quorum_leader ?? data.controller_id}`],
      ["Topics", h("a", { href: "/topics" }, format.count(data.topics)), `${format.plural(data.partitions, "partition")}${data.internal_topics ? `, ${format.plural(data.internal_topics, "internal topic")}` : ""}`],
      ["Groups", h("a", { href: "/groups" }, format.count(data.groups)), lagNote(data)],
      ["Written", format.rate(data.records_per_second), data.bytes_in_per_second === null ? "records" : format.byteRate(data.bytes_in_per_second)],
      data.bytes_out_per_second !== null && ["Read", format.byteRate(data.bytes_out_per_second), "by all clients"],
      ["Size", format.bytes(data.size_bytes), "all replicas"],
    ]));
    const { times_ms: times } = data.history;
    records.update({ times, series: [{ name: "records", values: data.history.records_per_second }] });
    lags.update({ times, series: [{ name: "lag", values: data.history.lag }] });
    sizes.update({ times, series: [{ name: "size", values: data.history.size_bytes }] });
    replace(brokers, brokerTable(data));
  }

  append(root, [
    head("Overview"), health, numbers,
    h("div.grid", card("Records written", records.element), card("Lag of all groups", lags.element), card("Size on disk", sizes.element)),
    h("section.card.flush", h("header", h("h2", "Brokers"), h("a", { href: "/cluster" }, "Who leads what")), brokers),
  ]);
  draw(await get("/api/overview", { signal }));
  live("/api/live/overview", { on: { overview: draw } });
}

function lagNote(data) {
  return data.lag === null ? "lag unknown yet" : h("span", "lag ", lag(data));
}

function healthOf(data) {
  const notices = data.problems.map((problem) => notice(KINDS[problem.severity] ?? "info", problem.title, words(problem.what_to_do ?? ""), [
    h("div.row.affected", problem.affected.slice(0, NAMES_SHOWN).map((name) => badge(name)), problem.affected_total > NAMES_SHOWN && h("span.muted", `and ${format.count(problem.affected_total - NAMES_SHOWN)} more`),
      problem.link && h("a", { href: problem.link }, "Show")),
  ]));
  if (notices.length || data.read_error) return notices; // the frame says the latter
  if (!data.complete) return notice("info", "Reading the cluster", "Some numbers come within seconds.");
  if (data.topics === 0) return empty("The cluster is well, and empty", h("p", "Create the first topic on the page ", h("a", { href: "/topics" }, "Topics"), ", or with ", h("code", "moldau topic create orders"), "."));
  return notice("ok", "All is well", "Every partition has a leader, and all replicas are in sync.");
}

function brokerTable(data) {
  return plainTable({
    caption: "Brokers", rows: data.brokers, keyOf: (broker) => broker.id,
    columns: [
      { label: "Broker", render: (broker) => h("span.row", h("a", { href: link("brokers", broker.id) }, `${broker.id}`), h("span.muted", `${broker.host}:${broker.port}`), broker.rack && h("span.muted", broker.rack)) },
      { label: "State", render: (broker) => h("span.row", brokerState(broker), broker.id === (data.quorum_leader ?? data.controller_id) && badge("controller", "accent")) },
      { label: "Leads", num: true, render: (broker) => format.count(broker.leaders) },
      { label: "Replicas in sync", num: true, render: (broker) => h("span", { class: broker.in_sync < broker.replicas ? "warn-text" : "" }, `${format.count(broker.in_sync)} of ${format.count(broker.replicas)}`) },
      { label: "Logs", num: true, render: (broker) => format.bytes(broker.size_bytes) },
      { label: "Disk", whole: true, render: disk },
    ],
  });
}

export function disk(broker) {
  const { disk_total_bytes: total, disk_free_bytes: free } = broker;
  if (!total) return format.NOTHING;
  return h("div.disk", meter(1 - free / total, `${Math.round((1 - free / total) * 100)}% of the disk is used`), h("span.muted.nowrap", `${format.bytes(free)} free`));
}
