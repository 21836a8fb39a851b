// The dialogs of ACLs: allow, deny, remove, and the test whether somebody may do something.

import { get, path, post } from "../api.js";
import { badge, notice, words } from "../components.js";
import { h, replace } from "../dom.js";
import { StayOpen, dialog, field, select } from "../dialog.js";
import * as format from "../format.js";
import { planDialog } from "../plan.js";
import { plainTable } from "../table.js";

const SHOWN = 200;
const NAMED = ["topic", "group", "transactional_id"];
const LABELS = { topic: "Topic", group: "Group", transactional_id: "Transactional id" };

export function kindWord(type) {
  return type.replaceAll("_", " ");
}

export function resourceOf(row) {
  if (row.type === "cluster") return "the cluster";
  if (row.pattern === "literal" && row.name === "*") return `all ${kindWord(row.type)}s`;
  return h("span", h("span.muted", `${kindWord(row.type)} `), row.name, row.pattern === "prefixed" && [" ", badge("prefix")]);
}

export function hostOf(row) {
  return row.host === "*" ? h("span.muted", "anywhere") : h("span.mono", row.host);
}

export function allowDialog(about, permission) {
  const operations = [...new Set(NAMED.concat("cluster").flatMap((kind) => about.operations[kind]))];
  const roles = permission === "allow" ? Object.keys(about.roles) : [];
  const what = select("what", [...roles.map((role) => [role, `what a ${role} needs`]), ["operations", "operations of your choice"]], roles[0] ?? "operations");
  const checks = h("div.field", h("span", "Operations"), h("div.checks", operations.map((each) => h("label.check", h("input", { type: "checkbox", name: "operation", value: each }), each))));
  const fields = Object.fromEntries(NAMED.map((kind) => [kind, field(LABELS[kind], textInput(kind, "none"))]));
  const cluster = h("label.check", h("input", { type: "checkbox", name: "cluster" }), "The cluster itself");

  function sync() {
    const kinds = about.roles[what.value];
    checks.hidden = Boolean(kinds);
    for (const kind of NAMED) fields[kind].hidden = Boolean(kinds) && !kinds.includes(kind);
    cluster.hidden = Boolean(kinds) && !kinds.includes("cluster");
  }
  what.addEventListener("change", sync);
  sync();

  return planDialog({
    title: permission === "allow" ? "Allow something" : "Deny something", danger: permission === "deny",
    fields: () => [
      h("div.fields",
        field("Principal", textInput("principal", "ann"), { hint: "A user's name, * for everybody, or TYPE:NAME." }),
        field("From", textInput("host", "anywhere"), { hint: "An address, if it holds for one only." })),
      permission === "deny" ? h("p.muted", "One denial is stronger than any number of permissions.") : field("What", what),
      checks,
      h("div.fields", NAMED.map((kind) => fields[kind])),
      h("div.checks", h("label.check", h("input", { type: "checkbox", name: "prefix" }), "The names are prefixes: everything that begins so"), cluster),
    ],
    bodyOf: (data) => aclRequest(data, permission, permission === "allow" && what.value !== "operations" ? what.value : null, (kind) => (kind === "cluster" ? cluster : fields[kind]).hidden),
    send: (body) => post("/api/acls", body),
    shown: (answer) => changesTable(answer.changes, "Plan of the ACLs"),
    action: (answer) => `Add ${format.plural(answer.changes.filter((each) => !each.exists).length, "ACL")}`,
  });
}

/** Fields that the choice of a role hides are not sent. */
function aclRequest(data, permission, role, isHidden) {
  const named = NAMED.filter((kind) => !isHidden(kind) && data.get(kind).trim());
  const resources = named.map((type) => ({ type, name: data.get(type).trim(), prefix: data.has("prefix") }));
  if (data.has("cluster") && !isHidden("cluster")) resources.push({ type: "cluster" });
  if (!resources.length) throw new Error("Name a resource: a topic, a group, a transactional id or the cluster. * is all of a kind.");
  return {
    permission, principal: data.get("principal").trim(), host: data.get("host").trim() || null, resources,
    ...(role ? { roles: [role] } : { operations: data.getAll("operation") }),
  };
}

/** Show what goes, then remove exactly these. */
export async function removeAcls(rows) {
  const body = { acls: rows };
  const planned = await post("/api/acls/remove", body);
  return planDialog({
    title: rows.length === 1 ? "Remove an ACL" : `Remove ${format.count(rows.length)} ACLs`, danger: true, planned,
    bodyOf: () => body, send: (each) => post("/api/acls/remove", each),
    shown: (answer) => changesTable(answer.changes, "Plan of the removal"),
    action: (answer) => `Remove ${format.plural(answer.changes.length, "ACL")}`,
  });
}

function changesTable(changes, caption) {
  return h("div.stack", plainTable({
    caption, rows: changes.slice(0, SHOWN),
    columns: [
      { label: "ACL", class: "any-length", render: (row) => h("span", row.principal, " ", badge(row.permission, row.permission === "allow" ? "ok" : "bad"), " ", row.operation) },
      { label: "Resource", wide: true, render: resourceOf },
      { label: "From", class: "nowrap", render: hostOf },
      { label: "Effect", whole: true, render: (row) => row.effect },
    ],
  }), changes.length > SHOWN && h("p.muted", `and ${format.count(changes.length - SHOWN)} more`));
}

function textInput(name, placeholder) {
  return h("input", { name, placeholder, autocomplete: "off", spellcheck: "false" });
}

export function testDialog(about) {
  const type = select("type", Object.keys(about.operations).map((each) => [each, kindWord(each)]), "topic");
  const operation = h("select", { name: "operation" });
  const nameField = field("Name", textInput("name", "orders"));
  const result = h("div", { role: "status" });

  function sync() {
    replace(operation, about.operations[type.value].map((each) => h("option", { value: each }, each)));
    operation.value = about.operations[type.value].includes("read") ? "read" : about.operations[type.value][0];
    nameField.hidden = type.value === "cluster";
  }
  type.addEventListener("change", sync);
  sync();

  return dialog({
    title: "May somebody do something?", action: "Test", cancel: "Close", wide: true,
    body: (form) => {
      form.addEventListener("input", () => replace(result));
      return [
        h("div.fields", field("Principal", textInput("principal", "ann"), { hint: "A user's name, or TYPE:NAME." }), field("From", textInput("host", "anywhere"), { hint: "An address." })),
        h("div.fields", field("Operation", operation), field("Resource", type), nameField),
        result,
      ];
    },
    submit: async (data) => {
      const asked = Object.fromEntries(["principal", "host", "operation", "type"].map((each) => [each, data.get(each).trim()]));
      const answer = await get(path("/api/access/test", {}, { ...asked, name: data.get("name").trim() || (asked.type === "cluster" ? "kafka-cluster" : "") }));
      replace(result, testResult(answer));
      throw new StayOpen();
    },
  });
}

function testResult(answer) {
  const depends = answer.exceptions.length > 0;
  const where = answer.host === "*" ? `From anywhere${depends ? " else" : ""}` : `From ${answer.host}`;
  const kind = depends ? "warn" : answer.allowed ? "ok" : "bad";
  const title = `${answer.allowed ? "Yes" : "No"}${depends ? ", but it depends on the address" : ""}`;
  return h("div.stack", notice(kind, title, h("span", answer.answer), h("div.muted", `${where}.`)),
    answer.notes.length > 0 && h("ul.notes", answer.notes.map((note) => h("li", words(note)))));
}
