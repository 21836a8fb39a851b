// The dialogs of quotas: set, change and remove, for a user, a client id, both, or an address.

import { post } from "../api.js";
import { h } from "../dom.js";
import { field, select } from "../dialog.js";
import * as format from "../format.js";
import { planDialog } from "../plan.js";
import { plainTable } from "../table.js";

const VALUES = {
  producer_byte_rate: { label: "Write", hint: "bytes per second", show: format.byteRate },
  consumer_byte_rate: { label: "Read", hint: "bytes per second", show: format.byteRate },
  request_percentage: { label: "Request time", hint: "percent of one thread", show: (value) => (value === null ? format.NOTHING : `${format.measured(value)} %`) },
  controller_mutation_rate: { label: "Partitions made", hint: "per second, in the whole cluster", show: format.rate },
  connection_creation_rate: { label: "Connections", hint: "per second", show: format.rate },
};
const WHOM = [["user", "a user"], ["client_id", "a client id"], ["both", "a user with a client id"], ["ip", "an address"]];
const LABELS = { user: "User", client_id: "Client id", ip: "Address" };

export function quotaValue(key) {
  return VALUES[key] ?? { label: key, hint: "", show: format.measured };
}

/** A new quota, or the quotas of a row. An empty field is no limit. */
export function quotaDialog(about, row = null) {
  const whom = select("whom", WHOM, "user");
  const names = Object.fromEntries(Object.entries(LABELS).map(([kind, label]) => [kind, field(label, h("input", { name: kind, placeholder: "each one without a quota of its own", autocomplete: "off", spellcheck: "false" }), { hint: "Empty: the default." })]));
  const limits = Object.fromEntries([...about.quotas.client, ...about.quotas.ip].map((key) => [key, field(quotaValue(key).label, h("input", { name: key, type: "number", min: "0", step: "any", placeholder: "no limit", value: row?.[key] ?? "" }), { hint: quotaValue(key).hint })]));
  const kinds = () => (row ? Object.keys(row.entity) : whom.value === "both" ? ["user", "client_id"] : [whom.value]);

  function sync() {
    const chosen = kinds();
    for (const kind of Object.keys(LABELS)) names[kind].hidden = !chosen.includes(kind);
    const known = keysFor(about, chosen);
    for (const key of Object.keys(limits)) limits[key].hidden = !known.includes(key);
  }
  whom.addEventListener("change", sync);
  sync();

  return planDialog({
    title: row ? `Quotas of ${row.title}` : "Set a quota",
    fields: () => [
      !row && h("div.fields", field("For", whom), Object.values(names)),
      h("div.fields", Object.values(limits)),
    ],
    bodyOf: (data) => quotaRequest(data, row, kinds(), keysFor(about, kinds())),
    send: (body) => post("/api/quotas", body), shown: changesTable, action: (answer) => `Change ${format.plural(answer.changes.length, "limit")}`,
  });
}

function keysFor(about, kinds) {
  return kinds.includes("ip") ? about.quotas.ip : about.quotas.client;
}

function quotaRequest(data, row, kinds, keys) {
  const entity = row?.entity ?? Object.fromEntries(kinds.map((kind) => [kind, data.get(kind).trim() || null]));
  const set = {};
  const unset = [];
  for (const key of keys) {
    const value = data.get(key);
    if (value !== "" && Number(value) !== row?.[key]) set[key] = Number(value);
    else if (value === "" && row && row[key] !== null) unset.push(key);
  }
  if (!Object.keys(set).length && !unset.length) throw new Error("No limit was changed. Write a number, or empty a field to remove its limit.");
  return { entity, set, unset };
}

export async function removeQuota(row, keys) {
  const body = { entity: row.entity, unset: keys.filter((key) => row[key] !== null) };
  return planDialog({
    title: `Remove the quotas of ${row.title}`, danger: true, planned: await post("/api/quotas", body),
    bodyOf: () => body, send: (each) => post("/api/quotas", each), shown: changesTable, action: (answer) => `Remove ${format.plural(answer.changes.length, "limit")}`,
  });
}

function changesTable(answer) {
  const none = (value) => (value === null ? "no limit" : null);
  return h("div.stack", h("p", "For ", h("strong", answer.title), ":"), plainTable({
    caption: "Plan of the quotas", rows: answer.changes,
    columns: [
      { label: "Limit", render: (row) => quotaValue(row.quota).label },
      { label: "Now", num: true, render: (row) => none(row.before) ?? quotaValue(row.quota).show(row.before) },
      { label: "Then", num: true, render: (row) => none(row.after) ?? quotaValue(row.quota).show(row.after) },
    ],
  }));
}
