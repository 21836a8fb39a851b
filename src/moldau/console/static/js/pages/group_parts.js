// What the pages of all groups have: buttons for what changes a group, its members, its rebalances.

import { path, post, remove } from "../api.js";
import { button, empty } from "../components.js";
import { h } from "../dom.js";
import { confirmByName, dialog, field, select } from "../dialog.js";
import * as format from "../format.js";
import { plainTable } from "../table.js";
import { toast } from "../toast.js";
import { resetDialog } from "./reset.js";

/** `data()` is the group as it is shown now; `changed` shows it again after a reset. */
export function groupActions({ name, go, data, changed }) {
  return [
    button("Reset offsets …", () => resetDialog(data()).then((done) => done && changed())),
    button("Delete offsets …", () => deleteOffsets(data())),
    button("Delete", () => deleteGroup(name, go), { kind: "danger" }),
  ];
}

/** Members of a share group have no lag of their own. */
export function memberTable(members, { lag = true } = {}) {
  if (!members.length) return empty("No members");
  return plainTable({
    caption: "Members", rows: members, keyOf: (row) => row.member_id,
    columns: [
      { label: "Member", render: (row) => [h("div", row.name), h("div.muted.mono.small", row.member_id)] },
      { label: "Host", render: (row) => h("span.nowrap", row.host ?? format.NOTHING) },
      { label: "Partitions", num: true, render: (row) => format.count(row.partitions.length) },
      lag && { label: "Lag", num: true, render: (row) => format.count(row.lag) },
    ].filter(Boolean),
  });
}

export function rebalanceList(rebalances) {
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
