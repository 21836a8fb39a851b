// One topic: its rates, partitions, readers and settings, and what can be changed.

import { get, patch, path, post, remove } from "../api.js";
import { badge, button, card, empty, errorNotice, figures, head, lag, notice, pairs, tabs } from "../components.js";
import { lineChart } from "../charts.js";
import { append, h, replace } from "../dom.js";
import { confirmByName, dialog, field, select } from "../dialog.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable, serverTable } from "../table.js";
import { tellError, toast } from "../toast.js";
import { troubles, viewBadges } from "./topics.js";

const TABS = { overview: "Overview", partitions: "Partitions", records: "Records", groups: "Readers", settings: "Settings" };

/** The heading and the tabs that all pages of a topic share. */
export function topicHead(name, current, { view = null, badges = [], actions = [], about = null } = {}) {
  return [
    head(name, { badges: [viewBadges(view), badges], actions, about }),
    tabs("Topic", Object.entries(TABS).map(([tab, label]) => [label, tab === "overview" ? link("topics", name) : link("topics", name, tab), tab === current])),
  ];
}

/** What a topic is a view of, and what it shows; null for a stored one. */
export async function viewOf(topic, signal) {
  return (await get(path("/api/topics/{topic}/view", { topic }), { signal })).view;
}

export function topicCrumbs(crumbs, name, ...more) {
  crumbs([["Topics", "/topics"], more.length ? [name, link("topics", name)] : [name], ...more]);
}

export async function topicPage(context) {
  const { root, params, signal, crumbs, go, may } = context;
  const name = params.topic;
  const tab = params.tab ?? "overview";
  const url = path("/api/topics/{topic}", { topic: name });
  topicCrumbs(crumbs, name, ...(tab === "overview" ? [] : [[TABS[tab] ?? tab]]));
  const data = await get(url, { signal });
  const { view } = data;
  append(root, topicHead(name, tab, {
    view, badges: [data.internal && badge("internal"), ...troubles(data)],
    actions: may ? [
      !view && h("a.button", { href: `${link("topics", name, "records")}?produce=1` }, "Produce"),
      !view && button("Trim", () => trimTopic(name)),
      button("Delete", () => deleteTopic(data, go), { kind: "danger" }),
    ] : [],
  }));
  const show = { overview, partitions, groups, settings }[tab];
  if (!show) root.append(empty("There is no such tab"));
  else await show(context, data);
}

function overview({ root, live }, data) {
  const numbers = h("div");
  const rates = lineChart({ label: "Records written per second", show: format.rate });
  const lags = lineChart({ label: "Lag, in records" });
  const sizes = lineChart({ label: "Size", show: format.bytes, base: 1024 });
  const rows = h("div");
  const { history, view } = data;
  const draw = (now) => {
    replace(numbers, figures([
      view ? ["Offsets", format.count(now.records), "of its source; it may show fewer records"] : ["Records", format.count(now.records), "log end minus log start"],
      ["Rate", format.rate(now.records_per_second), view ? "records written to its source" : "records written"],
      !view && ["Size", format.bytes(now.size_bytes), "all replicas"],
      ["Partitions", format.count(now.partitions), format.plural(now.replicas, "replica") + " each"],
      ["Lag", format.count(now.lag), lagNote(now)],
    ]));
    replace(rows, partitionTable(now.partition_rows));
    rates.update({ times: history.times_ms, series: [{ name: "records", values: history.records_per_second }] });
    lags.update({ times: history.times_ms, series: [{ name: "lag", values: history.lag }] });
    if (history.size_bytes) sizes.update({ times: history.times_ms, series: [{ name: "size", values: history.size_bytes }] });
  };
  append(root, [view && viewCard(view, data.name), numbers,
    data.views.length > 0 && card("Views of it", h("p", data.views.map((name, at) => [at > 0 && ", ", h("a", { href: link("topics", name) }, name)]))),
    h("div.grid", card(view ? "Records written to its source" : "Records written", rates.element), card("Lag of its readers", lags.element), history.size_bytes && card("Size on disk", sizes.element)),
    h("section.card.flush", h("header", h("h2", "Partitions"), data.partitions > data.partition_rows.length && h("a", { href: link("topics", data.name, "partitions") }, `All ${format.count(data.partitions)}`)), rows)]);
  draw(data);
  live(path("/api/live/topics/{topic}", { topic: data.name }), {
    on: {
      topic: (now) => {
        if (!now.read_error) { // else the numbers are old
          while (history.times_ms.at(-1) >= now.read_ms) { // the console's clock was set back: times only grow
            for (const values of Object.values(history)) values?.pop();
          }
          history.records_per_second.push(now.records_per_second);
          history.lag.push(now.lag);
          history.size_bytes?.push(now.size_bytes ?? history.size_bytes.at(-1) ?? null); // null where the user may not see sizes
          history.times_ms.push(now.read_ms); // the clock of this machine may be another
          for (const values of Object.values(history)) if (values?.length > 600) values.shift();
        }
        draw(now);
      },
    },
  });
}

const FORMATS = { keep: "as they are", drop: "left out", skip: "left out", pass: "shown as they are", null: "null", sha256: "their SHA-256" };

/** What a view shows of its source. It cannot be written, trimmed or changed. */
function viewCard(view, name) {
  const code = (text) => h("code.command", text);
  return card("View", view.source_deleted && notice("bad", `Its source ${view.from} was deleted`, "It shows nothing, also if a topic of this name is created again. Delete it."),
    pairs([
      ["Source", view.source_deleted ? view.from : h("a", { href: link("topics", view.from) }, view.from)],
      ["Condition", view.where ? code(view.where) : "none: all records are shown"],
      ["Fields", view.select ? code(view.select) : "the values as they are"],
      ["Values are read as", view.format ?? "json"],
      ["Keys", FORMATS[view.key ?? "keep"]],
      ["Headers", FORMATS[view.headers ?? "keep"]],
      ["Values that cannot be read", FORMATS[view.on_error ?? "skip"]],
      view.made_by && ["Made by", view.made_by],
    ]),
    h("p.muted", "It stores nothing, and cannot be written or changed. ", code(`moldau view describe ${name}`), " shows what brokers have evaluated for its readers."));
}

function lagNote({ groups: known, ...time }) {
  if (known === null) return "the groups are not read yet";
  if (known === 0) return "no group reads it";
  return time.lag_seconds === null ? null : format.age(time);
}

const PARTITION_COLUMNS = [
  { label: "Partition", sort: "partition", named: true, render: (row) => h("span", row.partition) },
  { label: "Leader", sort: "leader", num: true, render: (row) => (row.leader === null ? badge("none", "bad") : h("a", { href: link("brokers", row.leader) }, row.leader)) },
  { label: "Replicas", render: (row) => row.replicas.join(", ") },
  { label: "In sync", render: (row) => h("span", { class: row.isr.length < row.replicas.length ? "warn-text" : "" }, row.isr.join(", ")) },
  { label: "Start", num: true, render: (row) => format.count(row.start) },
  { label: "End", num: true, render: (row) => format.count(row.end) },
  { label: "Records", sort: "records", num: true, render: (row) => format.count(row.records) },
  { label: "Size", sort: "size_bytes", num: true, render: (row) => format.bytes(row.size_bytes) },
  { label: "Rate", sort: "records_per_second", num: true, render: (row) => format.rate(row.records_per_second) },
  { label: "Note", wide: true, optional: true, render: (row) => (row.note ? h("span", { class: row.isr.length < row.replicas.length || row.leader === null ? "warn-text" : "muted" }, row.note) : format.NOTHING) },
];

function partitionTable(rows) {
  return plainTable({ caption: "Partitions", rows, keyOf: (row) => row.partition, columns: PARTITION_COLUMNS });
}

async function partitions({ root, query, signal, every, may }, data) {
  const table = serverTable({
    caption: "Partitions", noun: "partition", query, keyOf: (row) => row.partition, columns: PARTITION_COLUMNS,
    load: (choice) => get(path("/api/topics/{topic}/partitions", { topic: data.name }, choice), { signal }),
    empty: () => empty("No partitions"),
    extras: [h("span.grow"), may && !data.view && button("Add partitions", () => addPartitions(data), { iconName: "plus" })],
  });
  root.append(table.element);
  await table.refresh();
  every(3, table.refresh);
}

function groups({ root }, data) {
  if (data.groups === null) {
    root.append(empty("The groups are not read yet", h("p", "Load the page again in a moment.")));
    return;
  }
  if (!data.readers.length) {
    root.append(empty("No group reads this topic", h("p", "A group that commits offsets of it appears here."), h("p", h("code", `moldau consume ${data.name} --group my-group`))));
    return;
  }
  root.append(plainTable({
    caption: "Groups that read this topic", rows: data.readers, keyOf: (row) => row.group,
    columns: [
      { label: "Group", render: (row) => h("a", { href: link("groups", row.group) }, row.group) },
      { label: "Lag in records", num: true, render: (row) => lag({ lag: row.lag }) },
      { label: "Lag in time", num: true, render: (row) => format.age(row) },
    ],
  }));
}

function settings({ root, may }, data) {
  if (!data.configs) {
    root.append(errorNotice({ message: data.configs_error ?? "The settings are not known." }));
    return;
  }
  const box = h("div");
  const all = h("input", { type: "checkbox" });
  const draw = () => replace(box, settingsTable(data.configs.filter((each) => all.checked || each.source === "topic"), may && !data.view ? (each) => editSetting(data.name, each) : null,
    () => empty("All settings are the broker's", h("p", "Tick the box above to see and change them."))));
  all.checked = !data.configs.some((each) => each.source === "topic");
  all.addEventListener("change", draw);
  append(root, [data.view ? h("p.muted", "A view does not change: delete it and create another.") : h("div.toolbar", h("label.check", all, "Show defaults too")), box]);
  draw();
}

export function settingsTable(rows, edit, none) {
  if (!rows.length) return none();
  return plainTable({
    caption: "Settings", rows, keyOf: (row) => row.name,
    columns: [
      { label: "Setting", render: (row) => [h("span.mono", row.name), row.documentation && h("div.muted.small", row.documentation)] },
      { label: "Value", whole: true, render: (row) => h("span.mono", row.sensitive ? "hidden" : row.value ?? format.NOTHING) },
      { label: "From", render: (row) => badge(row.source, row.source === "topic" ? "accent" : "") },
      ...(edit ? [{ label: "Change", class: "right bare", render: (row) => (row.read_only ? h("span.muted", "read-only") : h("button.small", { type: "button", "aria-label": `Change ${row.name}`, onclick: () => edit(row) }, "Change")) }] : []),
    ],
  });
}

async function editSetting(topic, setting) {
  const url = path("/api/topics/{topic}", { topic });
  const done = await dialog({
    title: setting.name, action: "Save",
    body: () => [
      setting.documentation && h("p.muted", setting.documentation),
      setting.type === "BOOLEAN"
        ? field("Value", select("value", ["true", "false"], setting.value))
        : field("Value", h("input", { name: "value", value: setting.value ?? "", spellcheck: "false" }), { hint: `Default: ${setting.default ?? "none"}` }),
      setting.source === "topic" && h("label.check", h("input", { type: "checkbox", name: "unset" }), "Remove it: use the broker's default again"),
    ],
    submit: (data) => patch(url, data.get("unset") ? { unset: [setting.name] } : { set: { [setting.name]: data.get("value") } }),
  });
  if (done) reload(done.messages.join("; "));
}

async function addPartitions(data) {
  const done = await dialog({
    title: "Add partitions", action: "Add partitions",
    body: () => [
      h("p", `${data.name} has ${format.plural(data.partitions, "partition")}. More can be added; they cannot be removed again, and keys may move to other partitions.`),
      field("Partitions from now on", h("input", { name: "partitions", type: "number", min: data.partitions + 1, value: data.partitions + 1, required: true })),
    ],
    submit: (form) => patch(path("/api/topics/{topic}", { topic: data.name }), { partitions: Number(form.get("partitions")) }),
  });
  if (done) reload(done.messages.join("; "));
}

async function trimTopic(name) {
  const done = await dialog({
    title: `Trim ${name}`, action: "Delete these records", danger: true,
    body: () => [
      h("p", "Deletes the oldest records of all partitions for good. The topic stays."),
      field("Delete what is before", h("input", { name: "before", required: true, value: "@-7d", spellcheck: "false" }), { hint: "An offset, a time (@2026-11-15T08:30:00Z), a distance (@-7d), or end for everything." }),
      field("The topic's name once more", h("input", { name: "confirm", required: true, autocomplete: "off", spellcheck: "false" })),
    ],
    submit: (form) => post(path("/api/topics/{topic}/trim", { topic: name }), { before: form.get("before"), confirm: form.get("confirm") }),
  });
  if (done) reload(`${name}: the oldest records are deleted`);
}

async function deleteTopic({ name, view, views }, go) {
  const orphans = views.length ? ` Views of it: ${views.join(", ")}: they will show nothing.` : "";
  const done = await confirmByName({
    title: `Delete ${name}?`, name, action: view ? "Delete view" : "Delete topic",
    sentence: view ? `Nothing is deleted of its source ${view.from}.` : `All its records are deleted, on all brokers. This cannot be undone.${orphans}`,
    submit: () => remove(path("/api/topics/{topic}", { topic: name }), { confirm: name }),
  });
  if (!done) return;
  toast(done.message, { kind: "ok" });
  go("/topics");
}

/** Show the page anew after a change; the message stays. */
function reload(message) {
  toast(message, { kind: "ok" });
  setTimeout(() => window.dispatchEvent(new PopStateEvent("popstate")), 400); // the collector reads the change within that
}

export { reload, tellError };
