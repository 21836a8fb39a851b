// Learn: see what Kafka does, on the real cluster behind the console, with a topic of its own.

import { get, path, post, remove } from "../api.js";
import { badge, button, empty, head, notice } from "../components.js";
import { append, h, redraw, replace } from "../dom.js";
import { field, select } from "../dialog.js";
import * as format from "../format.js";
import { Stage, colourOf } from "../stage.js";
import { plainTable } from "../table.js";
import { tellError } from "../toast.js";

const KEYS = ["anna", "ben", "cleo", "dan", "eva", "finn"];
const CONSUMERS_MAX = 6;

export async function learnPage({ root, signal, crumbs, live, may }) {
  crumbs([["Learn"]]);
  const stage = new Stage();
  const board = h("div.stack");
  const results = h("div", { role: "status" });
  const readers = h("output.mono");
  const replicas = h("div");
  const compaction = h("div");
  let data = null;
  let shape = null;

  function draw(now) {
    const fresh = !data || data.exists !== now.exists;
    data = now;
    const next = `${now.exists}`;
    if (shape !== next) replace(board, now.exists ? lessons() : begin());
    shape = next;
    if (fresh && !now.exists) stage.clear();
    stage.update(now.partitions ?? [], now.consumers ?? []);
    readers.textContent = String(now.consumers?.length ?? 0);
    redraw(replicas, now.partitions, () => replicaTable(now));
    redraw(compaction, [now.exists, now.compacted], () => compactionView(now, may && compact));
  }

  /** Make the topic anew first, unless it is compacted already: one that is takes only messages with a key. */
  const compact = () => act(async () => {
    if (!data.compacted) {
      const [{ replicas: { length: copies } }] = data.partitions;
      await post("/api/learn/topic", { partitions: data.partitions.length, replication_factor: copies, compacted: true });
      stage.clear();
    }
    return post("/api/learn/compact", {});
  });

  async function act(action) {
    try {
      const answer = await action();
      draw(await get("/api/learn", { signal }));
      return answer;
    } catch (error) {
      tellError(error);
      return null;
    }
  }

  async function send(count, keys, acks = "all") {
    const answer = await act(() => post("/api/learn/produce", { count, keys, acks }));
    if (!answer) return;
    for (const each of answer.results) if (!each.error && each.offset !== null) stage.record(each);
    replace(results, resultWords(answer));
  }

  /** Presses may come faster than answers: count from what was asked for last. */
  let wanted = null;
  async function consumers(step) {
    wanted = Math.min(CONSUMERS_MAX, Math.max(0, (wanted ?? data.consumers?.length ?? 0) + step));
    const mine = wanted;
    await act(() => post("/api/learn/consumers", { count: mine }));
    if (wanted === mine) wanted = null;
  }

  const stepper = (sign, label, step) => h("button", { type: "button", "aria-label": label, title: label, disabled: !may, onclick: () => consumers(step) }, sign);

  function begin() {
    if (!may) return notice("info", "This console is read-only", "Start it without --read-only to try things.");
    const partitions = h("input", { type: "number", min: "1", max: "8", value: "4" });
    const most = Math.min(3, Math.max(1, data?.brokers?.length ?? 1));
    const copies = select("replicas", ["1", "2", "3"].slice(0, most), String(most));
    return h("section.card.begin", empty("Begin with a topic of your own", h("p", "It is called moldau-learn. Nothing else in the cluster is touched.")),
      h("div.row.centre", field("Partitions", partitions), field("Replicas", copies)),
      h("div.row.centre", button("Create the topic", () => act(() => post("/api/learn/topic", { partitions: Number(partitions.value), replication_factor: Number(copies.value), compacted: false })), { kind: "primary" })));
  }

  function lessons() {
    return [
      h("section.card", h("div.grid",
        lesson("1", "Messages go to partitions", "With a key, a message always goes to the same partition: order is kept for each key. Without one, partitions take turns.",
          h("div.row", KEYS.slice(0, 4).map((key) => h("button", { type: "button", disabled: !may, onclick: () => send(1, [key]) }, h(`i.key-dot.${colourOf(key)}`), key)),
            button("10 by key", () => send(10, KEYS), { disabled: !may }), button("10 without a key", () => send(10, null), { disabled: !may }))),
        lesson("2", "A group shares the partitions", "Each partition has one reader in the group. When a consumer comes or goes, the group rebalances. More consumers than partitions: some are idle.",
          h("div.row", stepper("−", "One consumer less", -1), readers, stepper("+", "One consumer more", 1), h("span.muted", "consumers in the group ", h("a", { href: "/groups/moldau-learn" }, "moldau-learn"))))),
        h("div.stage-area", stage.element), results),
      h("div.grid", h("section.card",
        lesson("3", "Who must have it before it counts", "acks=0: nobody answers. acks=1: the leader has it. acks=all: all in-sync replicas have it, so it survives a broker. Kill one and try again:",
          h("div.row", ["0", "1", "all"].map((acks) => button(`Send, acks=${acks}`, () => send(1, null, acks), { disabled: !may }))),
          h("p.muted", "In a terminal: ", h("code.command", "moldau cluster kill 2"), " and ", h("code.command", "moldau cluster restart 2")), replicas)),
        h("section.card", compaction)),
      may && h("div.row", button("Remove the topic and the consumers", () => act(() => remove("/api/learn/topic")), { kind: "danger" })),
    ];
  }

  append(root, [head("Learn", { about: "What Kafka does, on the cluster behind this console." }), board]);
  draw(await get("/api/learn", { signal }));
  if (data.exists) await recall(stage, data.topic, signal);
  live("/api/live/learn", { on: { learn: draw, record: (each) => stage.record(each) } });
}

/** The records that are there already, without a show. */
async function recall(stage, topic, signal) {
  try {
    const answer = await get(path("/api/topics/{topic}/records", { topic }, { limit: 200 }), { signal });
    for (const each of answer.records) stage.record({ partition: each.partition, offset: each.offset, key: each.key.kind === "null" ? null : each.key.text }, { fly: false });
  } catch (error) {
    if (error.name === "AbortError") throw error; // else the stage begins empty
  }
}

function lesson(number, title, words, ...content) {
  return h("div.stack.lesson", h("h2", h("span.step", { "aria-hidden": "true" }, number), title), h("p.muted.prose", words), content);
}

function resultWords(answer) {
  const failed = answer.results.filter((each) => each.error);
  if (failed.length) return notice("bad", `${format.plural(failed.length, "message")} not acknowledged`, failed[0].error);
  const slowest = Math.max(...answer.results.map((each) => each.seconds ?? 0));
  const last = answer.results.at(-1);
  if (last.offset === null || last.offset === undefined) return h("p.muted", "Sent with acks=0: nobody says whether it arrived.");
  const where = answer.results.length === 1 ? `to partition ${last.partition}, offset ${last.offset}` : `to ${format.plural(new Set(answer.results.map((each) => each.partition)).size, "partition")}`;
  return h("p.muted", `Acknowledged (acks=${answer.acks}) ${where}, in ${format.milliseconds(slowest * 1000)} at most.`);
}

function replicaTable(data) {
  if (!data.partitions?.length) return null;
  return plainTable({
    caption: "Replicas", rows: data.partitions, keyOf: (row) => row.partition,
    columns: [
      { label: "Partition", named: true, render: (row) => row.partition },
      { label: "Leader", render: (row) => (row.leader === null ? badge("none", "bad") : row.leader) },
      { label: "Replicas", render: (row) => h("span.row", row.replicas.map((broker) => badge(broker, row.isr.includes(broker) ? (broker === row.leader ? "accent" : "ok") : "bad"))) },
      { label: "Next offset", num: true, render: (row) => format.count(row.end) },
    ],
  });
}

function compactionView(data, compact) {
  const { compacted } = data;
  return lesson("4", "Compaction keeps the newest of each key", "A compacted topic is a table: older values of a key go away, their offsets are never used again. The topic is made anew for this, and then takes only messages with a key.",
    compact && h("div.row", button(compacted ? "Again" : "Write keys three times and compact", compact)),
    compacted && h("div.grid", column("Before", compacted.before, compacted.after), compacted.after
      ? column("After", compacted.after, null)
      : h("div", h("h3", "After"), h("p.muted", { role: "status" }, compacted.waiting ? "The log cleaner is at work …" : "The log cleaner has removed nothing within a minute."))));
}

function column(title, rows, after) {
  const kept = after && new Set(after.map((each) => `${each.partition} ${each.offset}`));
  return h("div.stack", h("h3", `${title}: ${format.plural(rows.length, "record")}`), h("ol.log", rows.map((each) => h("li", { class: kept && !kept.has(`${each.partition} ${each.offset}`) ? "lost" : "" },
    h("span.muted.mono", each.offset), h(`i.key-dot.${colourOf(each.key)}`), h("span.mono", each.key), h("span.mono.muted", each.value)))));
}
