// One group: its members and what they read, its lag over time, its rebalances, and a reset that shows its plan first.

import { get, path } from "../api.js";
import { assignment } from "../assignment.js";
import { badge, card, empty, figures, head, notice, state, words } from "../components.js";
import { lineChart } from "../charts.js";
import { append, h, replace } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable } from "../table.js";
import { groupActions, memberTable, rebalanceList } from "./group_parts.js";
import { shareGroup } from "./share_group.js";

const SHOWN = 200;

export async function groupPage(context) {
  const { root, params, signal, crumbs, live, go, may } = context;
  const name = params.group;
  const url = path("/api/groups/{group}", { group: name });
  crumbs([["Groups", "/groups"], [name]]);
  let data = await get(url, { signal });
  if (data.note) {
    append(root, [head(name, { badges: [state(data.state), badge(data.type)] }), notice("info", "Another kind of group", words(data.note))]);
    return;
  }
  if (data.type === "Share") {
    await shareGroup(context, data);
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
      badges, actions: may ? groupActions({ name, go, data: () => data, changed: () => get(url, { signal }).then(draw) }) : [],
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
