// Cluster: who leads and follows what, live; the quorum; reassignments.

import { get, path, post } from "../api.js";
import { badge, brokerState, button, card, empty, errorNotice, figures, head, notice, words } from "../components.js";
import { meter } from "../charts.js";
import { append, h, replace } from "../dom.js";
import { StayOpen, dialog, field } from "../dialog.js";
import * as format from "../format.js";
import { legend, matrices } from "../matrix.js";
import { link } from "../router.js";
import { plainTable } from "../table.js";
import { tellError, toast } from "../toast.js";
import { disk } from "./overview.js";
import { settingsTable } from "./topic.js";

export async function clusterPage({ root, query, signal, crumbs, live, go, may }) {
  crumbs([["Cluster"]]);
  const topic = query.get("topic") ?? "";
  const brokers = h("div.brokers");
  const drawn = matrices((name) => link("topics", name));
  const health = h("div");
  const quorum = h("div");
  const running = h("div");
  const events = h("ol.events", { "aria-live": "polite", "aria-label": "What happened" });
  const note = h("p.muted");
  let before = null;

  function draw(data) {
    drawEvents(events, data.events);
    before = data;
    replace(health, healthNotice(data));
    replace(brokers, data.brokers.map((broker) => brokerCard(broker, data)));
    drawn.update(data.partitions, data.brokers);
    note.textContent = data.partitions_total > data.partitions.length ? `${data.partitions.length} of ${format.count(data.partitions_total)} partitions are drawn. Choose a topic to see up to 1,000 of its partitions, internal ones too.` : "";
    replace(quorum, quorumTable(data.quorum));
    replace(running, reassignments(data.reassignments, may));
  }

  append(root, [
    head("Cluster", {
      actions: may ? [
        button("Elect preferred leaders", elect, { title: "The first replica of each partition leads again, if it is in sync" }),
        button("Reassign …", () => before && reassignDialog(before)),
      ] : [],
    }),
    health, brokers,
    h("section.card", h("header", h("h2", "Who leads and follows what"), legend(), topicChoice(topic, go)), drawn.element, note),
    h("div.grid", card("What happened", events, h("p.muted.hint", "Changes since the console was started appear here. Stop a broker and watch.")), card("Quorum", quorum)),
    card("Reassignments", running),
  ]);
  draw(await get(path("/api/cluster", {}, { topic }), { signal }));
  live(path("/api/live/cluster", {}, { topic }), { on: { cluster: draw } });
}

function topicChoice(topic, go) {
  const input = h("input", { value: topic, placeholder: "Only this topic", "aria-label": "Only this topic", spellcheck: "false", data: { filter: "" } });
  return h("form", { onsubmit: (event) => {
    event.preventDefault();
    go(input.value.trim() ? `/cluster?topic=${encodeURIComponent(input.value.trim())}` : "/cluster");
  } }, input);
}

/** Draw the events anew only if there is another one: a screen reader reads what is added. */
function drawEvents(list, events) {
  const newest = list.firstChild?.dataset.event;
  const known = events.findIndex((each) => idOf(each) === newest);
  const fresh = (known < 0 ? events : events.slice(0, known)).map((each) => h("li", { data: { event: idOf(each) } },
    h("time.muted", { datetime: new Date(each.time_ms).toISOString() }, format.clock(each.time_ms)), h("span", { class: `${each.kind}-text` }, each.text)));
  if (known < 0) replace(list);
  list.prepend(...fresh);
  while (list.children.length > events.length) list.lastChild.remove();
}

function idOf(event) {
  return `${event.time_ms} ${event.text}`;
}

function healthNotice(data) {
  const { without_leader: offline, under_replicated: under, not_preferred: elsewhere } = data.health;
  if (offline) return notice("bad", `${isOrAre(offline)} offline`, "Nobody can write or read them until a replica that is in sync comes back. Start the broker that is down.");
  if (under) return notice("warn", `${isOrAre(under)} under-replicated`, "They work, but would survive fewer failures. Start the broker that is down, or wait until it has caught up.");
  if (elsewhere) return notice("info", `${format.plural(elsewhere, "partition")} led by another than the preferred broker`, "Harmless; elect preferred leaders to spread the work evenly again.");
  return null;
}

function isOrAre(partitions) {
  return `${format.plural(partitions, "partition")} ${partitions === 1 ? "is" : "are"}`;
}

function brokerCard(broker, data) {
  const leads = data.quorum?.leader ?? data.controller_id;
  return h("section.card.broker", { class: broker.alive ? "" : "gone", "aria-label": `Broker ${broker.id}`, data: { broker: broker.id, alive: String(broker.alive) } },
    h("header", h("h2", h("a", { href: link("brokers", broker.id) }, `Broker ${broker.id}`)), brokerState(broker), broker.id === leads && badge("controller", "accent")),
    h("div.muted.mono.small", `${broker.host}:${broker.port}${broker.rack ? ` · ${broker.rack}` : ""}`),
    h("dl.mini", [["leads", broker.leaders], ["replicas", broker.replicas], ["in sync", broker.in_sync]].map(([name, value]) => h("div", h("dd", format.count(value)), h("dt", name)))),
    broker.size_bytes !== null && h("div.muted", format.bytes(broker.size_bytes), " of logs"), broker.disk_total_bytes ? disk(broker) : null);
}

function quorumTable(quorum) {
  if (!quorum) return h("p.muted", "The cluster does not tell its quorum.");
  return h("div.stack", h("p.muted", `Epoch ${quorum.epoch}, high watermark ${format.count(quorum.high_watermark)}`), plainTable({
    caption: "Quorum", rows: quorum.replicas, keyOf: (row) => row.id,
    columns: [
      { label: "Node", render: (row) => h("span.row", row.id, badge(row.role, row.role === "leader" ? "accent" : "")) },
      { label: "Log end", num: true, render: (row) => format.count(row.log_end_offset) },
      { label: "Lag", num: true, render: (row) => format.count(row.lag) },
      { label: "Caught up", num: true, render: (row) => (row.last_caught_up_seconds === null ? format.NOTHING : `${format.duration(row.last_caught_up_seconds)} ago`) },
    ],
  }));
}

function reassignments(rows, may) {
  if (!rows.length) return h("p.muted", "None. Replicas that move to other brokers are shown here with their progress.");
  return plainTable({
    caption: "Reassignments", rows, keyOf: (row) => `${row.topic}-${row.partition}`,
    columns: [
      { label: "Partition", render: (row) => `${row.topic}-${row.partition}` },
      { label: "From", render: (row) => row.from.join(", ") },
      { label: "To", render: (row) => row.to.join(", ") },
      { label: "Copied", whole: true, render: (row) => h("div.disk", meter(row.share ?? 0, `${Math.round((row.share ?? 0) * 100)}% copied`), h("span.muted", `${format.bytes(row.done_bytes)} of ${format.bytes(row.total_bytes)}`)) },
      ...(may ? [{ label: "Stop", class: "right bare", render: (row) => h("button.small", { type: "button", onclick: () => cancel(row.topic) }, "Cancel") }] : []),
    ],
  });
}

async function elect() {
  try {
    const answer = await post("/api/cluster/elect", {});
    toast(answer.elected ? `${format.plural(answer.elected, "partition")} changed the leader` : "All preferred leaders lead already", { kind: "ok" });
  } catch (error) {
    tellError(error);
  }
}

async function cancel(topic) {
  try {
    const answer = await post("/api/cluster/reassign/cancel", { topics: [topic] });
    toast(`Cancelled ${format.plural(answer.cancelled, "reassignment")}`, { kind: "ok" });
  } catch (error) {
    tellError(error);
  }
}

async function reassignDialog(data) {
  const plan = h("div", { role: "status" });
  const alive = data.brokers.filter((broker) => broker.alive).map((broker) => broker.id);
  let shown = null;
  const done = await dialog({
    title: "Move replicas to other brokers", action: "Show the plan", wide: true,
    body: () => [
      field("Topics", h("input", { name: "topics", required: true, spellcheck: "false", placeholder: "orders, payments" }), { hint: "Separated by commas." }),
      h("div.fields",
        field("Onto brokers", h("input", { name: "brokers", required: true, value: alive.join(", ") })),
        field("Replicas", h("input", { name: "replicas", type: "number", min: "1", max: alive.length, placeholder: "as now" }))),
      plan,
    ],
    submit: async (form, element) => {
      const ask = { topics: listOf(form.get("topics")), brokers: listOf(form.get("brokers")).map(Number), replication_factor: form.get("replicas") ? Number(form.get("replicas")) : null };
      const same = JSON.stringify(ask);
      if (shown?.same === same) {
        return post("/api/cluster/reassign", { plan: shown.plan, execute: true });
      }
      const answer = await post("/api/cluster/reassign", { ...ask, execute: false });
      shown = { same, plan: answer.plan };
      replace(plan, answer.plan.length ? planTable(answer.plan) : "Nothing would move.");
      element.querySelector("button[type=submit]").textContent = `Move ${format.plural(answer.plan.length, "partition")}`;
      throw new StayOpen();
    },
  });
  if (done) toast("The reassignment has begun; its progress is on this page", { kind: "ok" });
}

function listOf(text) {
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

function planTable(rows) {
  return h("div.stack", h("h3", "The plan: nothing has moved yet"), plainTable({
    caption: "Plan", rows: rows.slice(0, 200), keyOf: (row) => `${row.topic}-${row.partition}`,
    columns: [
      { label: "Partition", render: (row) => `${row.topic}-${row.partition}` },
      { label: "From", render: (row) => row.from.join(", ") },
      { label: "To", render: (row) => row.to.join(", ") },
    ],
  }));
}

/** What a broker leads, topic by topic. */
function leadsCard(data) {
  const topics = new Map();
  for (const { topic, partition } of data.leads) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  return h("section.card.flush", h("header", h("h2", "Leads")), plainTable({
    caption: "Partitions that it leads", rows: [...topics].map(([topic, partitions]) => ({ topic, partitions })), keyOf: (row) => row.topic,
    columns: [
      { label: "Topic", render: (row) => h("a", { href: link("topics", row.topic) }, row.topic) },
      { label: "Partitions", whole: true, render: (row) => row.partitions.join(", ") },
      { label: "Count", num: true, render: (row) => format.count(row.partitions.length) },
    ],
  }), data.leaders > data.leads.length && h("p.muted.table-note", `${data.leads.length} of ${format.count(data.leaders)} partitions.`));
}

/** One broker: its disks, its settings, what it leads. */
export async function brokerPage({ root, params, signal, crumbs }) {
  crumbs([["Cluster", "/cluster"], [`Broker ${params.broker}`]]);
  const data = await get(path("/api/brokers/{id}", { id: params.broker }), { signal });
  const settings = h("div");
  const all = h("input", { type: "checkbox" });
  const table = (configs) => settingsTable(configs.filter((each) => all.checked || each.source !== "default"), null, () => empty("All settings are the defaults", h("p", "Tick the box to see them.")));
  const drawSettings = () => replace(settings, data.configs ? table(data.configs) : errorNotice({ message: data.configs_error ?? "The settings are not known." }));
  all.addEventListener("change", drawSettings);
  drawSettings();
  append(root, [
    head(`Broker ${data.id}`, { badges: [brokerState(data)], about: `${data.host}:${data.port}${data.rack ? ` · rack ${data.rack}` : ""}` }),
    figures([
      ["Leads", format.count(data.leaders), "partitions"], ["Replicas", format.count(data.replicas), `${format.count(data.in_sync)} in sync`], ["Logs", format.bytes(data.size_bytes)],
      data.bytes_in_per_second !== null && ["Written", format.byteRate(data.bytes_in_per_second)], data.bytes_out_per_second !== null && ["Read", format.byteRate(data.bytes_out_per_second)],
    ]),
    h("section.card.flush", h("header", h("h2", "Disks")), plainTable({
      caption: "Disks", rows: data.log_dirs, keyOf: (row) => row.path,
      columns: [
        { label: "Directory", render: (row) => h("span.mono", row.path) },
        { label: "Logs", num: true, render: (row) => format.bytes(row.size_bytes) },
        { label: "Disk", whole: true, render: (row) => (row.error ? h("span.bad-text", words(row.error)) : disk({ disk_total_bytes: row.total_bytes, disk_free_bytes: row.free_bytes })) },
      ],
    })),
    data.leads.length > 0 && leadsCard(data),
    h("div.toolbar", h("h2", "Settings"), h("span.grow"), data.configs && h("label.check", all, "Show defaults too")), settings,
  ]);
}
