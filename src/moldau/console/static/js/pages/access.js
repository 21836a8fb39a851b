// Access: who may do what (ACLs), who has a password (users), and how much each may use (quotas).

import { get, path } from "../api.js";
import { badge, button, empty, head, notice, tabs, words } from "../components.js";
import { append, h } from "../dom.js";
import * as format from "../format.js";
import { setQuery } from "../router.js";
import { serverTable } from "../table.js";
import { select } from "../dialog.js";
import { toast } from "../toast.js";
import { allowDialog, hostOf, kindWord, removeAcls, resourceOf, testDialog } from "./access_acls.js";
import { quotaDialog, quotaValue, removeQuota } from "./access_quotas.js";
import { addUser, newPassword, removeUser } from "./access_users.js";

const PARTS = [["ACLs", "/access"], ["Users", "/access/users"], ["Quotas", "/access/quotas"]];
const MISSING = { acls: "ALTER", users: "ALTER", quotas: "ALTER_CONFIGS" };
const SEEING = { acls: "DESCRIBE", users: "DESCRIBE", quotas: "DESCRIBE_CONFIGS" };
/** By `allow.everyone.if.no.acl.found`, which is null if the brokers do not tell it. */
const WITHOUT_ACLS = {
  true: "Everybody may do everything until an ACL is about it.",
  false: "Only super users may do anything until an ACL allows it.",
  null: "The brokers do not tell whether only super users may do something now, or everybody.",
};
const REMOVED_AT_ONCE = 500;

export async function accessPage({ root, params, query, signal, crumbs, every, may }) {
  const name = params.tab ?? "acls";
  crumbs(name === "acls" ? [["Access"]] : [["Access", "/access"], [name[0].toUpperCase() + name.slice(1)]]);
  const part = { acls: aclsPart, users: usersPart, quotas: quotasPart }[name];
  const about = await get("/api/access", { signal });
  const place = name === "acls" ? "/access" : `/access/${name}`;
  append(root, [
    head("Access", { about: "Who may do what, who has a password, and how much each may use." }),
    !about.authorizer && notice("warn", "Everybody may do everything", words(about.note)),
    about.allows_everyone && notice("info", "What no ACL is about, everybody may use", words("`allow.everyone.if.no.acl.found=true` is set on the brokers.")),
    tabs("Parts of access", PARTS.map(([label, href]) => [label, href, href === place])),
  ]);
  if (!part) {
    append(root, [notice("bad", "There is no such page")]);
    return;
  }
  if (!about.sees[name]) {
    if (name !== "acls" || about.authorizer) append(root, [notice("info", `You may not see ${PARTS.find(([, href]) => href === place)[0]}`, `That needs ${SEEING[name]} on the cluster; ask for an ACL.`)]);
    return;
  }
  const table = part(about, query, signal);
  append(root, [
    may && !about.may[name] && h("p.muted", about.changes_note ? words(about.changes_note) : `You may look, but not change anything here: that needs ${MISSING[name]} on the cluster.`),
    table.element,
  ]);
  await table.refresh();
  every(30, table.refresh);
}

/** Show what was done, and the list as it is then. */
async function after(change, table, text) {
  const done = await change;
  if (!done) return;
  toast(text(done), { kind: "ok" });
  await table.refresh();
}

// --- ACLs ---

function aclsPart(about, query, signal) {
  const chosen = { resource: query.get("resource") ?? "", type: query.get("type") ?? "", permission: query.get("permission") ?? "" };
  let last = null;
  const resource = h("input.narrow", { type: "search", value: chosen.resource, placeholder: "Resource", "aria-label": "Filter by the name of the resource", autocomplete: "off", spellcheck: "false" });
  const type = select("type", [["", "all resources"], ...Object.keys(about.operations).map((each) => [each, `${kindWord(each)}s`.replace("clusters", "the cluster")])], chosen.type);
  const permission = select("permission", [["", "allow and deny"], ["allow", "allow"], ["deny", "deny"]], chosen.permission);
  type.setAttribute("aria-label", "Type of the resource");
  permission.setAttribute("aria-label", "Permission");
  const choose = () => {
    Object.assign(chosen, { resource: resource.value, type: type.value, permission: permission.value });
    setQuery(chosen);
    table.change({ page: 1 });
  };
  for (const each of [resource, type, permission]) each.addEventListener("change", choose);
  const removeAll = button("", () => after(removeShown(), table, (done) => `Removed ${format.plural(done.changes.length, "ACL")}`), { kind: "danger" });
  removeAll.hidden = true;

  async function removeShown() {
    const { rows } = await get(path("/api/acls", {}, { ...last, size: REMOVED_AT_ONCE }), { signal });
    return removeAcls(rows);
  }

  const table = serverTable({
    caption: "ACLs", noun: "ACL", query, filterLabel: "Filter by principal", keyOf: (row) => Object.values(row).join(" "),
    load: async ({ filter, ...choice }) => {
      const wanted = { principal: filter, ...chosen };
      const answer = await get(path("/api/acls", {}, { ...choice, ...wanted }), { signal });
      last = wanted;
      removeAll.hidden = !about.may.acls || !Object.values(wanted).some(Boolean) || !answer.matching || answer.matching > REMOVED_AT_ONCE;
      removeAll.textContent = answer.matching === 1 ? "Remove this one" : `Remove these ${format.count(answer.matching)}`;
      return answer;
    },
    empty: () => (Object.values(chosen).some(Boolean)
      ? empty("No ACL matches", h("p", "Choose another resource, type or permission."))
      : empty("No ACLs yet", h("p", WITHOUT_ACLS[about.allows_everyone]),
        about.may.acls && button("Allow something", () => allow("allow"), { kind: "primary" }))),
    extras: [
      resource, type, permission, removeAll, h("span.grow"),
      button("Test", () => testDialog(about)),
      about.may.acls && button("Deny", () => allow("deny")),
      about.may.acls && button("Allow", () => allow("allow"), { kind: "primary", iconName: "plus" }),
    ],
    columns: [
      { label: "Principal", class: "any-length", sort: "principal", render: (row) => row.principal },
      { label: "Permission", class: "nowrap", sort: "permission", render: (row) => badge(row.permission, row.permission === "allow" ? "ok" : "bad") },
      { label: "Operation", class: "nowrap", sort: "operation", render: (row) => row.operation },
      { label: "Resource", sort: "name", wide: true, render: resourceOf },
      { label: "From", class: "nowrap", sort: "host", render: hostOf },
      about.may.acls && { label: "", class: "right bare nowrap", render: (row) => button("Remove", () => after(removeAcls([row]), table, () => `Removed an ACL of ${row.principal}`), { kind: "small" }) },
    ].filter(Boolean),
  });
  const allow = (permitted) => after(allowDialog(about, permitted), table, (done) => `Added ${format.plural(done.changes.filter((each) => !each.exists).length, "ACL")}`);
  return table;
}

// --- users ---

const KINDS = {
  password: ["password", "ok"], certificate: ["certificate", "accent"], everybody: ["everybody", "warn"], other: ["no password here", ""],
};

function usersPart(about, query, signal) {
  const change = about.may.users;
  const table = serverTable({
    caption: "Users", noun: "user", query, filterLabel: "Filter by name", keyOf: (row) => row.principal,
    load: (choice) => get(path("/api/users", {}, choice), { signal }),
    empty: () => empty("No users yet", h("p", "Users with a password log in with SCRAM; users of certificates appear here when an ACL names them."), change && add()),
    extras: [h("span.grow"), change && add()],
    columns: [
      { label: "Principal", class: "any-length", sort: "principal", render: (row) => h("span", row.principal, " ", (about.super_users ?? []).includes(row.principal) && badge("super user", "accent")) },
      { label: "Known by", class: "nowrap", sort: "kind", render: (row) => badge(...KINDS[row.kind]) },
      { label: "Mechanisms", wide: true, optional: true, render: (row) => (row.mechanisms.length ? row.mechanisms.map((each) => [h("span.nowrap", each), " "]) : format.NOTHING) },
      { label: "ACLs", sort: "acls", num: true, render: (row) => (row.acls ? h("a", { href: `/access?filter=${encodeURIComponent(`=${row.principal}`)}` }, format.count(row.acls)) : format.count(row.acls)) },
      change && { label: "", class: "right bare nowrap", render: (row) => row.name !== null && h("span.buttons",
        !about.passwords_note && button("New password", () => after(newPassword(row.name), table, () => `${row.name} has a new password`), { kind: "small" }),
        button("Remove", () => after(removeUser(row.name), table, () => `Removed ${row.name}`), { kind: "small" })) },
    ].filter(Boolean),
  });
  function add() {
    return button("Add user", () => after(addUser(), table, (done) => `Added ${done.changes[0].user}`), {
      kind: "primary", iconName: "plus", disabled: Boolean(about.passwords_note), title: about.passwords_note });
  }
  if (change && about.passwords_note) table.element.prepend(notice("info", "No passwords here", words(about.passwords_note)));
  return table;
}

// --- quotas ---

function quotasPart(about, query, signal) {
  const change = about.may.quotas;
  const keys = [...about.quotas.client, ...about.quotas.ip];
  const table = serverTable({
    caption: "Quotas", noun: "quota", query, filterLabel: "Filter by user, client id or address", keyOf: (row) => row.title,
    load: (choice) => get(path("/api/quotas", {}, choice), { signal }),
    empty: () => empty("No quotas yet", h("p", "A quota limits how much a user, a client id or an address may use. Who is above it waits."), change && set()),
    extras: [h("span.grow"), change && set()],
    columns: [
      { label: "For", class: "any-length", sort: "title", render: (row) => row.title },
      ...keys.map((key) => ({ label: quotaValue(key).label, sort: key, num: true, optional: true, render: (row) => quotaValue(key).show(row[key]) })),
      change && { label: "", class: "right bare nowrap", render: (row) => h("span.buttons",
        button("Change", () => after(quotaDialog(about, row), table, done), { kind: "small" }),
        button("Remove", () => after(removeQuota(row, keys), table, done), { kind: "small" })) },
    ].filter(Boolean),
  });
  const done = (answer) => `Changed ${format.plural(answer.changes.length, "limit")} of ${answer.title}`;
  function set() {
    return button("Set a quota", () => after(quotaDialog(about), table, done), { kind: "primary", iconName: "plus" });
  }
  return table;
}
