// Transactions: which are open and for how long, which hang, and how to end one.

import { get, path, post } from "../api.js";
import { button, empty, errorNotice, figures, head, state } from "../components.js";
import { append, h, replace } from "../dom.js";
import { confirmByName, field } from "../dialog.js";
import * as format from "../format.js";
import { link, setQuery } from "../router.js";
import { plainTable, serverTable } from "../table.js";
import { toast } from "../toast.js";

export async function transactionsPage({ root, query, signal, crumbs, every, may }) {
  crumbs([["Transactions"]]);
  const open = h("input", { type: "checkbox", checked: query.get("open") === "true" });
  open.addEventListener("change", () => {
    setQuery({ open: open.checked });
    table.change({ page: 1 });
  });
  const table = serverTable({
    caption: "Transactions", noun: "transactional id", query, filterLabel: "Filter by transactional id", keyOf: (row) => row.transactional_id,
    load: (choice) => get(path("/api/transactions", {}, { ...choice, open: open.checked }), { signal }),
    empty: () => empty(open.checked ? "No transaction is open" : "No transactions yet", h("p", "A producer with a transactional.id writes to several partitions at once, all or nothing.")),
    extras: [h("label.check", open, "Only open ones")],
    columns: [
      { label: "Transactional id", sort: "transactional_id", render: (row) => h("a", { href: link("transactions", row.transactional_id) }, row.transactional_id) },
      { label: "State", sort: "state", wide: true, render: (row) => state(row.state) },
      { label: "Open for", sort: "open_seconds", num: true, render: (row) => h("span", { class: row.open_seconds > 60 ? "warn-text" : "" }, format.duration(row.open_seconds)) },
      { label: "Partitions", num: true, render: (row) => format.count(row.partitions) },
      { label: "Producer", sort: "producer_id", num: true, render: (row) => row.producer_id ?? format.NOTHING },
      { label: "Coordinator", num: true, render: (row) => row.coordinator ?? format.NOTHING },
    ],
  });
  append(root, [
    head("Transactions", { about: "While a transaction is open, readers of committed records wait in its partitions." }),
    table.element, hangingCard(signal, may),
  ]);
  await table.refresh();
  every(3, table.refresh);
}

/** Hanging transactions have no coordinator that would end them. The search reads every partition, so it waits for a press. */
function hangingCard(signal, may) {
  const topic = h("input", { name: "topic", placeholder: "all topics", spellcheck: "false" });
  const minutes = h("input", { name: "minutes", type: "number", min: "1", value: "15" });
  const result = h("div", { role: "status" });
  const search = async (event) => {
    event?.preventDefault();
    replace(result, h("p.muted", "Searching …"));
    try {
      const answer = await get(path("/api/hanging", {}, { topic: topic.value.trim(), longer_than_seconds: Number(minutes.value) * 60 }), { signal });
      replace(result, hangingTable(answer, may, search));
    } catch (error) {
      if (error.name !== "AbortError") replace(result, errorNotice(error));
    }
  };
  return h("section.card", h("header", h("h2", "Hanging transactions")),
    h("p.muted", "A transaction hangs if its coordinator has forgotten it: nobody will end it, and readers wait for ever."),
    h("form.fields", { onsubmit: search }, field("Topic", topic), field("Open for minutes", minutes), h("div.field.end", h("button", { type: "submit" }, "Search"))),
    result);
}

function hangingTable(answer, may, again) {
  const looked = `${format.plural(answer.searched_partitions, "partition")} searched`;
  if (!answer.rows.length) return h("p.ok-text", `None hangs; ${looked}.`);
  return h("div.stack", h("p", `${format.plural(answer.rows.length, "transaction")} may hang; ${looked}.`), plainTable({
    caption: "Hanging transactions", rows: answer.rows, keyOf: (row) => `${row.topic}-${row.partition}-${row.start}`,
    columns: [
      { label: "Partition", render: (row) => `${row.topic}-${row.partition}` },
      { label: "Producer", num: true, render: (row) => row.producer_id },
      { label: "Begins at", num: true, render: (row) => format.count(row.start) },
      { label: "Last write", num: true, render: (row) => `${format.duration(row.last_write_seconds)} ago` },
      ...(may ? [{ label: "End it", class: "right bare", render: (row) => h("button.small.danger", { type: "button", onclick: () => abort({ topic: row.topic, partition: row.partition, start: row.start }, `${row.topic}-${row.partition}`).then((done) => done && again()) }, "Abort …") }] : []),
    ],
  }));
}

async function abort(what, name) {
  const done = await confirmByName({
    title: "Abort the transaction?", name, action: "Abort transaction",
    sentence: "What it has written is never read as committed, and its producer gets an error.",
    submit: () => post("/api/transactions/abort", what),
  });
  if (done) toast(done.message ?? "Aborted", { kind: "ok" });
  return done;
}

export async function transactionPage({ root, params, signal, crumbs, may, go }) {
  const { id } = params;
  crumbs([["Transactions", "/transactions"], [id]]);
  const data = await get(path("/api/transactions/{id}", { id }), { signal });
  append(root, [
    head(id, { badges: [state(data.state)], actions: may && data.state === "Ongoing" ? [button("Abort …", () => abort({ transactional_id: id }, id).then((done) => done && go(link("transactions", id), { replace: true })), { kind: "danger" })] : [] }),
    figures([
      ["Open for", format.duration(data.open_seconds)], ["Timeout", format.duration(data.timeout_seconds), "then it is aborted"],
      ["Producer", data.producer_id, `epoch ${data.producer_epoch}`], ["Coordinator", h("a", { href: link("brokers", data.coordinator) }, data.coordinator)],
    ]),
    data.partitions.length ? plainTable({
      caption: "Partitions of the transaction", rows: data.partitions, keyOf: (row) => `${row.topic}-${row.partition}`,
      columns: [
        { label: "Topic", render: (row) => h("a", { href: link("topics", row.topic) }, row.topic) },
        { label: "Partition", num: true, render: (row) => row.partition },
        { label: "Begins at", num: true, render: (row) => (row.start === null ? format.NOTHING : h("a", { href: `${link("topics", row.topic, "records")}?from=${row.start}&partition=${row.partition}&committed=false` }, format.count(row.start))) },
      ],
    }) : empty("It has written nothing yet"),
  ]);
}
