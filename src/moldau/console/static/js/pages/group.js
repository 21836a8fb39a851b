// One group: its members and what they read, its lag over time, its rebalances, and a reset that shows its plan first.

import { get, path, post, remove } from "../api.js";
import { assignment } from "../assignment.js";
import { badge, button, card, empty, figures, head, notice, state, words } from "../components.js";
import { lineChart } from "../charts.js";
import { append, h, replace } from "../dom.js";
import { confirmByName, dialog, field, select } from "../dialog.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable } from "../table.js";
import { toast } from "../toast.js";
import { resetDialog } from "./reset.js";

const SHOWN = 200;

export async function groupPage({ root, params, signal, crumbs, live, go, may }) {
  const name = params.group;
  const url = path("/api/groups/{group}", { group: name });
  crumbs([["Groups", "/groups"], [name]]);
  let data = await get(url, { signal });
  if (data.note) {
    append(root, [head(name, { badges: [state(data.state), badge(data.type)] }), notice("info", "Another kind of group", words(data.note))]);
    return;
  }
  const badges = h("span.row");
  const numbers = h("div");
  const drawing = h("div");
  const records = lineChart({ label: "Lag in records" });
  const seconds = lineChart({ label: "Lag in seconds", show: format.duration });
  const table = h("div");
  const members = h("div");
  const rebalances = h("div");
  let drawn = "";

  function draw(now) {
    data = now;
    replace(badges, state(now.state), now.micro_batch_ids && badge("Spark"));
    replace(numbers, figuresOf(now));
    const picture = JSON.stringify([now.members, now.partitions.map((each) => [each.topic, each.partition, each.member, each.lag])]);
    if (picture !== drawn) {
      drawn = picture;
      replace(drawing, now.members.length ? assignment(now.members, now.partitions) : noMembers(name));
      replace(members, memberTable(now.members));
      replace(table, partitionTable(now));
    }
    const times = now.history.times_ms;
    records.update({ times, series: [{ name: "records", values: now.history.lag }] });
    seconds.update({ times, series: [{ name: "seconds", values: now.history.lag_seconds }] });
    replace(rebalances, rebalanceList(now.rebalances));
  }

  append(root, [
    head(name, {
      badges, actions: may ? [
        button("Reset offsets …", () => resetDialog(data).then((done) => done && get(url, { signal }).then(draw))),
        button("Delete offsets …", () => deleteOffsets(data)),
        button("Delete", () => deleteGroup(name, go), { kind: "danger" }),
      ] : [],
    }),
    numbers,
    h("div.grid", card("Lag in records", records.element), card("Lag in time", seconds.element)),
    card("Who reads what", drawing),
    h("section.card.flush", h("header", h("h2", "Offsets")), table),
    h("div.grid", h("section.card.flush", h("header", h("h2", "Members")), members), card("Rebalances", rebalances)),
  ]);
  draw(data);
  live(path("/api/live/groups/{group}", { group: name }), { on: { group: draw } });
}

function figuresOf(data) {
  return figures([
    ["Lag", format.count(data.lag), "records"],
    ["Lag in time", format.age(data), "age of the next record"],
    ["Members", format.count(data.members.length)],
    ["Protocol", data.type === "Consumer" ? "consumer (KIP-848)" : data.type ?? format.NOTHING, data.assignor ? `assignor: ${data.assignor}` : null, "text"],
    ["Coordinator", data.coordinator ?? format.NOTHING, data.epoch === null ? null : `epoch ${data.epoch}`, "text"],
  ]);
}

function noMembers(name) {
  return empty("No members", h("p", "Nobody reads for this group now. Its offsets are kept, and can be reset."), h("p", h("code", `moldau consume TOPIC --group ${name}`)));
}

function partitionTable(data) {
  if (!data.partitions.length) return empty("No offsets", h("p", "The group has committed nothing yet."));
  const names = new Map(data.members.map((member) => [member.member_id, member.name]));
  const shown = data.partitions.slice(0, SHOWN);
  return [
    plainTable({
      caption: "Offsets of the group", rows: shown, keyOf: (row) => `${row.topic}-${row.partition}`,
      columns: [
        { label: "Topic", render: (row) => h("a", { href: link("topics", row.topic) }, row.topic) },
        { label: "Partition", num: true, render: (row) => row.partition },
        { label: "Committed", num: true, render: (row) => (row.committed === null ? format.NOTHING : h("a", { href: `${link("topics", row.topic, "records")}?from=${row.committed}&partition=${row.partition}` }, format.count(row.committed))) },
        { label: "Log end", num: true, render: (row) => format.count(row.end) },
        { label: "Lag", num: true, render: (row) => h("span", { class: row.lag ? "" : "muted" }, format.count(row.lag)) },
        { label: "Lag in time", num: true, render: (row) => format.age(row) },
        { label: "Member", render: (row) => names.get(row.member) ?? h("span.muted", "nobody") },
      ],
    }),
    data.partitions_total > shown.length && h("p.muted.table-note", `The ${SHOWN} furthest behind of ${format.count(data.partitions_total)} partitions.`),
  ];
}

function memberTable(members) {
  if (!members.length) return empty("No members");
  return plainTable({
    caption: "Members", rows: members, keyOf: (row) => row.member_id,
    columns: [
      { label: "Member", render: (row) => [h("div", row.name), h("div.muted.mono.small", row.member_id)] },
      { label: "Host", render: (row) => h("span.nowrap", row.host ?? format.NOTHING) },
      { label: "Partitions", num: true, render: (row) => format.count(row.partitions.length) },
      { label: "Lag", num: true, render: (row) => format.count(row.lag) },
    ],
  });
}

function rebalanceList(rebalances) {
  if (!rebalances.length) return h("p.muted", "None since this console runs. When members come or go, this says who.");
  return h("ol.events", rebalances.slice(0, 12).map((each) => h("li",
    h("time.muted.nowrap", { datetime: new Date(each.time_ms).toISOString() }, format.clock(each.time_ms)),
    h("div", h("div", each.cause), h("div.muted", `${format.plural(each.from_members, "member")} → ${each.to_members}`)))));
}

async function deleteGroup(name, go) {
  const done = await confirmByName({
    title: `Delete the group ${name}?`, name, action: "Delete group",
    sentence: "Its offsets are forgotten: a consumer that comes back begins where its own setting says. Records are not touched.",
    submit: () => remove(path("/api/groups/{group}", { group: name }), { confirm: name }),
  });
  if (!done) return;
  toast(done.message ?? `Deleted ${name}`, { kind: "ok" });
  go("/groups");
}

/** Forget the offsets of one topic that the group no longer reads. */
async function deleteOffsets(data) {
  const topics = [...new Set(data.partitions.map((each) => each.topic))].sort();
  const done = await dialog({
    title: `Delete offsets of ${data.group}`, action: "Delete its offsets", danger: true,
    body: () => [
      h("p", "The group forgets how far it has read this topic, and no longer has a lag there. Records are not touched."),
      field("Topic", select("topic", topics)),
      field("The group's name once more", h("input", { name: "confirm", required: true, autocomplete: "off", spellcheck: "false" })),
    ],
    submit: (form) => post(path("/api/groups/{group}/offsets/delete", { group: data.group }), { topic: form.get("topic"), confirm: form.get("confirm") }),
  });
  if (done) toast(done.message ?? "Forgotten", { kind: "ok" });
}
