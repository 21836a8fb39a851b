// Reset a group's offsets: choose where to, see the plan, then do exactly that.

import { path, post } from "../api.js";
import { h, replace } from "../dom.js";
import { StayOpen, dialog, field, select } from "../dialog.js";
import * as format from "../format.js";
import { plainTable } from "../table.js";
import { toast } from "../toast.js";

const TARGETS = [
  ["earliest", "the start of the log"], ["latest", "the end of the log"], ["time", "a time"], ["offset", "an offset"],
  ["shift", "forward or back by"], ["hand", "each partition by hand"],
];

export async function resetDialog(group) {
  const topics = [...new Set(group.partitions.map((each) => each.topic))].sort();
  const to = select("to", TARGETS, "earliest");
  const where = h("input", { name: "where", spellcheck: "false" });
  const whereField = field("", where);
  const hand = h("div");
  const plan = h("div", { role: "status" });
  let shown = null;
  let button = null;

  function sync() {
    const hints = { time: ["Time", "@-1h or 2026-11-15T08:30:00Z", "-1h"], offset: ["Offset", "in every partition", "0"], shift: ["Records", "+100 forward, -100 back", "-100"] };
    const [label, hint, value] = hints[to.value] ?? ["", "", ""];
    whereField.hidden = !label;
    whereField.firstChild.textContent = label;
    where.placeholder = hint;
    where.value = value;
    replace(hand, to.value === "hand" ? byHand(group) : null);
    forget();
  }

  function forget() {
    shown = null;
    replace(plan);
    if (button) button.textContent = "Show the plan";
  }

  const done = await dialog({
    title: `Reset offsets of ${group.group}`, action: "Show the plan", wide: true,
    body: (form) => {
      form.addEventListener("input", forget);
      queueMicrotask(() => { button = form.querySelector("button[type=submit]"); });
      to.addEventListener("change", sync);
      sync();
      return [
        group.members.length > 0 && h("div.notice.warn", h("div", h("strong", "The group has members. "), "Stop them first: offsets can be reset only while nobody reads.")),
        h("div.fields", field("Move to", to), whereField, field("Topics", select("topic", [["", "all topics of the group"], ...topics.map((topic) => [topic, topic])], ""))),
        hand, plan,
      ];
    },
    submit: async (data) => {
      const body = requestOf(data, to.value, where.value.trim(), group);
      const same = JSON.stringify(body);
      const answer = await post(path("/api/groups/{group}/reset", { group: group.group }), { ...body, execute: shown === same });
      if (answer.executed) return answer;
      shown = same;
      replace(plan, planTable(answer.partitions));
      button.textContent = `Reset ${format.plural(answer.partitions.length, "partition")}`;
      throw new StayOpen();
    },
  });
  if (done) toast(`Reset ${format.plural(done.partitions.length, "partition")} of ${group.group}`, { kind: "ok" });
  return done;
}

function requestOf(data, kind, where, group) {
  const topics = data.get("topic") ? { topics: [data.get("topic")] } : {};
  if (kind === "hand") {
    const offsets = {};
    for (const each of group.partitions) {
      const name = `${each.topic}:${each.partition}`;
      const value = data.get(`at ${name}`);
      if (value !== null && value !== "" && Number(value) !== each.committed) offsets[name] = Number(value);
    }
    if (!Object.keys(offsets).length) throw new Error("No offset was changed. Write another number at a partition.");
    return { offsets, new: false };
  }
  const target = { earliest: "earliest", latest: "latest", time: `@${where.replace(/^@/, "")}`, offset: where, shift: /^[+-]/.test(where) ? where : `+${where}` }[kind];
  return { to: target, new: false, ...topics };
}

/** Fields with what is committed now, and how far each could go. */
function byHand(group) {
  return plainTable({
    caption: "Offsets by hand", rows: group.partitions.slice(0, 200), keyOf: (row) => `${row.topic}:${row.partition}`,
    columns: [
      { label: "Partition", render: (row) => `${row.topic}-${row.partition}` },
      { label: "Log end", num: true, render: (row) => format.count(row.end) },
      { label: "Offset", num: true, render: (row) => h("input.narrow", { name: `at ${row.topic}:${row.partition}`, type: "number", min: "0", value: row.committed ?? "", "aria-label": `Offset of ${row.topic}-${row.partition}` }) },
    ],
  });
}

function planTable(partitions) {
  if (!partitions.length) return h("p", "Nothing would change.");
  return h("div.stack", h("h3", "The plan: nothing has changed yet"), plainTable({
    caption: "Plan of the reset", rows: partitions.slice(0, 200), keyOf: (row) => `${row.topic}-${row.partition}`,
    columns: [
      { label: "Partition", render: (row) => `${row.topic}-${row.partition}` },
      { label: "Now", num: true, render: (row) => format.count(row.before) },
      { label: "Then", num: true, render: (row) => format.count(row.after) },
      { label: "Move", num: true, render: (row) => (row.move > 0 ? `+${format.count(row.move)}` : format.count(row.move)) },
      { label: "Lag then", num: true, render: (row) => format.count(row.lag) },
    ],
  }));
}
