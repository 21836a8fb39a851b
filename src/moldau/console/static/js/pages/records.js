// Records of a topic: from a place in it or live, filtered, with links, exports and replays.

import { get, path, post, queryString } from "../api.js";
import { button, empty, errorNotice, notice, whatIsLeft } from "../components.js";
import { append, h, replace } from "../dom.js";
import { StayOpen, dialog, field, select } from "../dialog.js";
import * as format from "../format.js";
import { icon } from "../icons.js";
import { preview } from "../payload.js";
import { setQuery } from "../router.js";
import { toast } from "../toast.js";
import { produceDialog } from "./produce.js";
import { recordAddress, recordBody } from "./record.js";
import { topicCrumbs, topicHead, viewOf } from "./topic.js";

const FILTERS = ["partition", "text", "key", "header", "field", "where", "tombstones", "committed"]; // the API refuses "field", of links of earlier versions
const KEEP = 500; // rows of a live list

/** What the form says, as parameters of the API. `from` of live is left out. */
export function choiceOf(query) {
  const choice = {};
  for (const name of [...FILTERS, "from", "limit"]) if (query.get(name)) choice[name] = query.get(name);
  if (choice.from === "live") delete choice.from;
  return choice;
}

export async function recordsPage({ root, params, query, signal, crumbs, live, go, may }) {
  const { topic } = params;
  topicCrumbs(crumbs, topic, ["Records"]);
  const url = path("/api/topics/{topic}/records", { topic });
  const state = { query, next: null, stream: null, count: 0, asked: 0 };
  const view = await viewOf(topic, signal);
  const mayProduce = may && !view;
  const list = h("section.records", { "aria-label": "Records" });
  const status = h("span", { role: "status" });
  const problem = h("div");
  const more = button("Show more", () => search({ go_on: true }));
  const pause = button("Pause", () => (state.stream ? stopLive() : startLive()), { iconName: "pause" });
  const exports = h("div.row");
  const form = searchForm(query, () => apply());

  function apply() {
    const changes = form.read();
    state.query = setQuery(changes);
    drawExports();
    if (state.query.get("from") === "live") startLive({ fresh: true });
    else search();
  }

  function drawExports() {
    const choice = queryString({ ...choiceOf(state.query), limit: null, from: exportFrom(state.query.get("from")) });
    const address = (kind) => `${path("/api/topics/{topic}/export", { topic })}?format=${kind}${choice ? `&${choice}` : ""}`;
    replace(exports,
      h("a.button.small", { href: address("jsonl"), download: "" }, "Export JSON lines"),
      h("a.button.small", { href: address("csv"), download: "" }, "CSV"),
      may && button("Replay …", () => replayDialog(topic, choiceOf(state.query)), { kind: "small" }));
  }

  async function search({ go_on: goOn = false } = {}) {
    stopLive();
    const mine = (state.asked += 1);
    pause.hidden = true;
    more.disabled = true;
    replace(problem);
    form.mark(false);
    if (!goOn) list.classList.add("loading");
    try {
      const answer = await get(`${url}?${queryString({ ...choiceOf(state.query), cursor: goOn ? state.next : null })}`, { signal });
      if (mine !== state.asked) return; // another search or the live view was begun meanwhile
      if (!goOn) {
        replace(list);
        state.count = 0;
      }
      show(answer);
    } catch (error) {
      if (error.name === "AbortError" || mine !== state.asked) return;
      tell(error);
      if (!goOn) forget();
    } finally {
      if (mine === state.asked) {
        more.disabled = false;
        list.classList.remove("loading");
      }
    }
  }

  /** An error; of a condition also the place. */
  function tell(error) {
    replace(problem, errorNotice(error, error.column && markedPlace(state.query.get("where") ?? "", error.column)));
    form.mark(Boolean(error.column));
  }

  /** The records of an earlier search do not answer this one. */
  function forget() {
    replace(list);
    Object.assign(state, { next: null, count: 0 });
    more.hidden = true;
    status.textContent = "";
  }

  function show(answer) {
    append(list, answer.records.map((record) => recordRow(topic, record)));
    if (answer.hints.length) replace(problem, notice("info", "The condition may mean something else", `${answer.hints.join(". ")}.`));
    state.count += answer.records.length;
    state.next = answer.next;
    more.hidden = answer.next === null;
    more.textContent = answer.stopped === "work" ? "Search on" : "Show more";
    const looked = `looked at ${format.plural(answer.scanned.records, "record")}, ${format.bytes(answer.scanned.bytes)}`;
    status.textContent = `${format.plural(state.count, "record")}, ${answer.order} first; ${looked}${answer.stopped === "work" ? "; there is more to search" : ""}`;
    if (!state.count) replace(list, nothing(topic, answer, state.query, mayProduce && (() => produceDialog(topic, go).then((done) => done && search())), Boolean(view)));
  }

  function startLive({ fresh = false } = {}) {
    stopLive();
    state.asked += 1;
    list.classList.remove("loading");
    replace(problem);
    form.mark(false);
    if (fresh) replace(list, h("p.muted.live-hint", "Waiting for new records …"));
    more.hidden = true;
    pause.hidden = false;
    replace(pause, icon("pause"), "Pause");
    let skipped = 0;
    let seen = 0;
    state.stream = live(`${path("/api/live/records/{topic}", { topic })}?${queryString({ ...choiceOf(state.query), limit: null })}`, {
      on: {
        records: (data) => {
          list.querySelector(".live-hint")?.remove();
          list.prepend(...data.records.map((record) => recordRow(topic, record)).reverse());
          while (list.children.length > KEEP) list.lastChild.remove();
          skipped += data.skipped;
          seen += data.records.length;
          status.textContent = `Live: ${format.plural(seen, "record")}${skipped ? `; ${format.count(skipped)} more than a browser can show` : ""}`;
        },
        idle: () => {},
      },
      failed: (error) => {
        tell(error);
        forget();
        pause.hidden = true;
      },
    });
    status.textContent = "Live: new records appear at the top";
  }

  function stopLive() {
    state.stream?.close();
    if (state.stream) replace(pause, icon("play"), "Go on");
    state.stream = null;
  }

  list.addEventListener("keydown", (event) => moveAlong(list, event));
  append(root, [
    topicHead(topic, "records", { view, actions: mayProduce ? [button("Produce", () => produceDialog(topic, go).then((done) => done && !state.stream && search()), { kind: "primary", iconName: "plus" })] : [] }),
    form.element, problem, h("div.table-foot", status, h("span.pages"), exports), list, h("div.row", more, pause),
  ]);
  pause.hidden = true;
  more.hidden = true;
  drawExports();
  if (view?.source_deleted) replace(problem, notice("bad", `${topic} shows nothing: its source ${view.from} was deleted`));
  else if (query.get("from") === "live") startLive({ fresh: true });
  else await search();
  if (query.get("produce") && mayProduce) {
    setQuery({ produce: null });
    produceDialog(topic, go).then((done) => done && search());
  }
}

function exportFrom(from) {
  return from === "end" || from === "live" ? null : from;
}

function moveAlong(list, event) {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = event.target.closest("details");
  if (!step || !row || event.target.tagName !== "SUMMARY") return;
  event.preventDefault();
  row[step]?.querySelector("summary")?.focus();
}

/** One record: a line that unfolds. What is inside is made when it is opened. */
function recordRow(topic, record) {
  const inside = h("div.record-body");
  const row = h("details.record",
    h("summary",
      h("span.place.mono", `${record.partition} / ${record.offset}`),
      h("time.muted", { datetime: isoOf(record.timestamp_ms) }, format.moment(record.timestamp_ms)),
      h("span.key", preview(record.key, 40)),
      h("span.value", preview(record.value)),
      record.dead_letter && h("span.reason", `Dead letter: ${format.shortened(record.dead_letter.reason, 300)}`)),
    inside);
  row.addEventListener("toggle", () => {
    if (row.open && !inside.childNodes.length) append(inside, [h("a", { href: recordAddress(topic, record) }, "Open on its own page"), recordBody(topic, record)]);
  });
  return row;
}

function isoOf(ms) {
  const at = new Date(ms ?? NaN);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

function nothing(topic, answer, query, produce, isView) {
  const filtered = FILTERS.some((name) => query.get(name));
  if (filtered && answer.next !== null) return empty("Nothing found so far", h("p", `${format.plural(answer.scanned.records, "record")} looked at. Search on to look at more.`));
  if (filtered) return empty("No record matches", h("p", "Take a filter away, or begin elsewhere."));
  if (isView) return empty("No records here", h("p", "No record of its source is shown."));
  return empty("No records here", h("p", "Produce one, or write some in a terminal:"), h("code", `echo 'key:value' | moldau produce ${topic} --key-separator :`), produce && button("Produce a record", produce, { kind: "primary" }));
}

/** Where to begin and what to look for. The words of a filter are those of the API. */
function searchForm(query, apply) {
  const from = query.get("from") ?? "end";
  const kind = ["start", "end", "live"].includes(from) ? from : from.startsWith("@") ? "time" : "offset";
  const where = h("input", { name: "where_from", value: kind === "offset" ? from : kind === "time" ? from.slice(1) : "", spellcheck: "false", "aria-label": "Offset or time" });
  const begin = select("kind", [["end", "Newest first"], ["start", "From the start"], ["offset", "From offset"], ["time", "From time"], ["live", "Live"]], kind);
  begin.setAttribute("aria-label", "Begin");
  const input = (name, placeholder) => h("input", { name, value: query.get(name) ?? "", placeholder, spellcheck: "false", autocomplete: "off" });
  const text = h("input", { name: "text", type: "search", value: query.get("text") ?? "", placeholder: "Search keys, values, headers", spellcheck: "false", "aria-label": "Search keys, values and headers", data: { filter: "" } });
  const partition = h("input.narrow", { name: "partition", value: query.get("partition") ?? "", placeholder: "all partitions", "aria-label": "Partitions, separated by commas" });
  const few = ["key", "header", "where", "tombstones", "committed"];
  const extra = h("details.more", { open: few.some((name) => query.get(name)) ? true : undefined },
    h("summary", "More filters"),
    h("div.fields",
      field("Key", input("key", "contains; =exactly")),
      field("Header", input("header", "name, or name:text")),
      field("Tombstones", select("tombstones", [["", "also"], ["only", "only"], ["without", "none"]], query.get("tombstones") ?? "")),
      field("Transactions", select("committed", [["", "committed only"], ["false", "also open and aborted"]], query.get("committed") ?? "")),
      widened(field("Where", input("where", "amount > 100 and key = 'anna'"), { hint: "As the condition of a view. Fields of JSON values: amount, user.name, items[0].id; of the record: key, value, timestamp, partition, offset, header('name'); = <> < > and or not, in ( ), between, like '%text%', is null; contains(), lower(), starts_with() …" }))));
  const element = h("form.card.search-form", { role: "search" },
    h("div.toolbar", h("div.search", icon("search"), text), begin, where, partition, h("button.primary", { type: "submit" }, "Search")), extra);
  const sync = () => {
    where.hidden = !["offset", "time"].includes(begin.value);
    where.placeholder = begin.value === "time" ? "-1h or 2026-11-15T08:30:00Z" : "offset";
  };
  begin.addEventListener("change", () => {
    sync();
    if (where.hidden) apply();
    else where.focus();
  });
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  sync();
  const read = () => {
    const data = new FormData(element);
    const place = String(where.value).trim();
    const begins = { end: null, start: "start", live: "live", offset: place || "0", time: `@${place.replace(/^@/, "") || "-1h"}` }[begin.value];
    return { from: begins, ...Object.fromEntries(FILTERS.map((name) => [name, (data.get(name) ?? "").trim()])) };
  };
  /** Whether the condition is wrong. */
  const mark = (isWrong) => {
    const condition = element.elements.namedItem("where");
    if (isWrong) condition.setAttribute("aria-invalid", "true");
    else condition.removeAttribute("aria-invalid");
  };
  return { element, read, mark };
}

/** A field that takes a whole line. */
function widened(element) {
  element.classList.add("whole");
  return element;
}

/** A condition with the letter at a column marked. */
function markedPlace(text, column) {
  const letters = [...text];
  return h("pre.place", letters.slice(0, column - 1).join(""), h("mark", letters[column - 1] ?? " "), letters.slice(column).join(""));
}

async function replayDialog(topic, choice) {
  const words = h("p", { role: "status" }, "First count what would be copied; nothing is written before you have seen it.");
  let planned = null;
  const done = await dialog({
    title: `Replay records of ${topic}`, action: "Count", wide: false,
    body: () => [
      field("To topic", h("input", { name: "to", required: true, spellcheck: "false", autocomplete: "off" }), { hint: "Keys, headers and times are kept." }),
      h("div.fields",
        field("From", h("input", { name: "from", value: choice.from && choice.from !== "end" ? choice.from : "start", required: true, spellcheck: "false" })),
        field("At most", h("input", { name: "limit", type: "number", min: "1", max: "10000", value: "1000", required: true }))),
      h("label.check", h("input", { type: "checkbox", name: "keep_partition" }), "Into the same partition numbers"),
      words,
    ],
    submit: async (data, form) => {
      const { limit: _limit, from: _from, committed: _committed, ...filters } = choice;
      const body = { ...filters, to: data.get("to").trim(), from: data.get("from"), limit: Number(data.get("limit")), keep_partition: Boolean(data.get("keep_partition")) };
      const same = JSON.stringify(body);
      const answer = await post(path("/api/topics/{topic}/replay", { topic }), { ...body, dry_run: planned !== same });
      if (planned === same) return answer;
      planned = same;
      words.textContent = `${format.plural(answer.matching, "record")} would be copied to ${body.to}. ${whatIsLeft(answer)}`;
      form.querySelector("button[type=submit]").textContent = `Copy ${format.plural(answer.matching, "record")}`;
      throw new StayOpen();
    },
  });
  if (done) toast(`Copied ${format.plural(done.copied, "record")}`, { kind: "ok", hint: whatIsLeft(done) });
}

