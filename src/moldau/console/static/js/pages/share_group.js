// A share group: which records are available, acquired, acknowledged and archived, and dead letters to send again.

import { get, path, post } from "../api.js";
import { assignment } from "../assignment.js";
import { badge, button, card, empty, errorNotice, figures, head, notice, state, words } from "../components.js";
import { lineChart } from "../charts.js";
import { append, h, redraw, replace } from "../dom.js";
import { dialog } from "../dialog.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { plainTable } from "../table.js";
import { toast } from "../toast.js";
import { groupActions, memberTable } from "./group_parts.js";
import { recordAddress } from "./record.js";

const SHOWN = 200;
const LETTERS = 50;
const KINDS = { available: "warn", acknowledged: "ok", archived: "bad" };

export async function shareGroup({ root, params, signal, go, every, may }, first) {
  const name = params.group;
  const url = path("/api/groups/{group}", { group: name });
  let data = first;
  const problem = h("div");
  const badges = h("span.row");
  const numbers = h("div");
  const drawing = h("div");
  const partitions = h("div");
  const ranges = h("div");
  const members = h("div");
  const letters = h("section.card.flush");
  const chart = lineChart({ label: "Records that are not finished" });
  const sent = new Set();

  function draw(now) {
    data = now;
    replace(badges, state(now.state), badge("queue"));
    replace(numbers, figuresOf(now));
    redraw(drawing, [now.members, now.partitions], () => (now.members.length ? assignment(now.members, now.partitions) : noMembers(name)));
    redraw(partitions, [now.members, now.partitions], () => partitionTable(now));
    redraw(ranges, [now.partitions, now.states_error], () => rangeTable(now));
    redraw(members, now.members, () => memberTable(now.members, { lag: false }));
    chart.update({ times: now.history.times_ms, series: [{ name: "records", values: now.history.lag }] });
  }

  async function drawLetters() {
    const { topic } = data.dead_letters;
    const found = topic ? await lettersOf(topic, name, signal) : [];
    redraw(letters, [data.dead_letters, found, [...sent]], () => letterCard(data, found, sent, may && ((records) => sendAgain(data, records, sent).then((done) => done && refresh(drawLetters)()))));
  }

  const refresh = (action) => async () => {
    try {
      await action();
      replace(problem);
    } catch (error) {
      if (error.name !== "AbortError") replace(problem, errorNotice(error));
    }
  };
  const again = refresh(async () => draw(await get(url, { signal })));

  append(root, [
    head(name, { badges, actions: may ? groupActions({ name, go, data: () => data, changed: again }) : [] }),
    problem, numbers,
    h("div.grid", card("Not finished", chart.element), card("Who takes records of what", drawing)),
    h("section.card.flush", h("header", h("h2", "Partitions")), partitions),
    h("section.card.flush", h("header", h("h2", "How often records were delivered")), ranges),
    letters,
    h("section.card.flush", h("header", h("h2", "Members")), members),
  ]);
  draw(data);
  await refresh(drawLetters)();
  every(3, again);
  every(10, refresh(drawLetters));
}

function figuresOf(data) {
  const sum = (name) => data.partitions.reduce((total, each) => (total === null || each[name] === null ? null : total + each[name]), 0);
  const { acquired, lag } = data;
  const open = acquired === null
    ? [["Available or acquired", format.count(lag), "brokers measure how many are acquired: --metrics"]]
    : [["Available", format.count(lag === null ? null : Math.max(0, lag - acquired)), "for the next who asks"], ["Acquired", format.count(acquired), "with members now"]];
  return figures([
    ...open,
    ["Acknowledged", format.count(sum("acknowledged")), "after the start offset"],
    ["Archived", format.count(sum("archived")), "given up, after the start offset"],
    ["Lag in time", format.age(data), "age of the first that is not finished"],
    ["Members", format.count(data.members.length)],
    ["Coordinator", data.coordinator, `epoch ${data.epoch}`, "text"],
  ]);
}

function noMembers(name) {
  return empty("No members", h("p", "Nobody works for this group now. What is not finished waits."), h("p", h("code", `kafka-console-share-consumer.sh --topic TOPIC --group ${name}`)));
}

function partitionTable(data) {
  if (!data.partitions.length) return empty("No offsets", h("p", "The group has taken nothing yet."));
  const names = new Map(data.members.map((member) => [member.member_id, member.name]));
  const shown = data.partitions.slice(0, SHOWN);
  return [
    plainTable({
      caption: "Partitions of the group", rows: shown, keyOf: (row) => `${row.topic}-${row.partition}`,
      columns: [
        { label: "Topic", render: (row) => h("a", { href: link("topics", row.topic) }, row.topic) },
        { label: "Partition", num: true, render: (row) => row.partition },
        { label: "Start", num: true, render: (row) => (row.committed === null ? format.NOTHING : recordsFrom(row, row.committed, format.count(row.committed))) },
        { label: "Log end", num: true, render: (row) => format.count(row.end) },
        { label: "Not finished", num: true, render: (row) => h("span", { class: row.lag ? "" : "muted" }, format.count(row.lag)) },
        { label: "Acknowledged", num: true, render: (row) => format.count(row.acknowledged) },
        { label: "Archived", num: true, render: (row) => format.count(row.archived) },
        { label: "Lag in time", num: true, render: (row) => format.age(row) },
        { label: "Members", render: (row) => row.members.map((id) => names.get(id)).join(", ") || h("span.muted", "nobody") },
      ],
    }),
    data.partitions_total > shown.length && h("p.muted.table-note", `The ${SHOWN} with the most that is not finished of ${format.count(data.partitions_total)} partitions.`),
  ];
}

function recordsFrom(row, offset, text) {
  return h("a", { href: `${link("topics", row.topic, "records")}?from=${offset}&partition=${row.partition}` }, text);
}

/** What came most often and is not done comes first. */
function rangeTable(data) {
  if (data.states_error) return notice("info", "Not shown", words(data.states_error));
  const rows = data.partitions.flatMap((each) => (each.ranges ?? []).map((range) => ({ ...range, topic: each.topic, partition: each.partition })));
  const waits = (row) => (row.state === "available" ? row.deliveries : 0);
  rows.sort((a, b) => waits(b) - waits(a) || a.partition - b.partition || a.first - b.first);
  const total = data.partitions.reduce((sum, each) => sum + (each.ranges_total ?? 0), 0);
  return [
    rows.length > 0 && plainTable({
      caption: "Records after the start offset", rows: rows.slice(0, SHOWN), keyOf: (row) => `${row.topic}-${row.partition}-${row.first}`,
      columns: [
        { label: "Topic", render: (row) => row.topic },
        { label: "Partition", num: true, render: (row) => row.partition },
        { label: "Offsets", num: true, render: (row) => recordsFrom(row, row.first, row.first === row.last ? format.count(row.first) : `${format.count(row.first)} – ${format.count(row.last)}`) },
        { label: "State", render: (row) => badge(row.state, KINDS[row.state]) },
        { label: "Delivered", render: (row) => format.times(row.deliveries) },
      ],
    }),
    h("p.muted.table-note", total > SHOWN && `The first ${SHOWN} of ${format.count(total)} ranges. `,
      "Before the start offset all records are done. Offsets that are not listed were never given back: they are new, or a member has them for the first time now."),
  ];
}

/** The newest first. A topic may have the dead letters of several groups. */
async function lettersOf(topic, group, signal) {
  const answer = await get(path("/api/topics/{topic}/records", { topic }, { header: `__dlq.errors.group:${group}`, limit: LETTERS }), { signal });
  return answer.records.filter((each) => each.dead_letter?.written_by === group);
}

function letterCard(data, letters, sent, send) {
  const { topic, copies, error } = data.dead_letters;
  const isSent = (record) => sent.has(`${record.partition} ${record.offset}`);
  const left = letters.filter((record) => !isSent(record) && hasPlace(record.dead_letter));
  const about = error ? words(error)
    : !topic ? ["Records that the group gives up are lost. ", h("code", "errors.deadletterqueue.topic.name"), " of the group names a topic for them."]
      : ["In ", h("a", { href: link("topics", topic, "records") }, topic), copies ? ", with key and value." : ", without key and value: they are read where the record was, as long as it is there."];
  return [
    h("header", h("h2", "Dead letters"), send && left.length > 1 && button(`Send all ${left.length} again …`, () => send(left), { kind: "small" })),
    h("p.muted.table-note", about),
    letters.length > 0 && plainTable({
      caption: "Dead letters", rows: letters, keyOf: (row) => `${row.partition}-${row.offset}`,
      columns: [
        { label: "When", render: (row) => h("a.nowrap", { href: recordAddress(topic, row) }, format.moment(row.timestamp_ms)) },
        { label: "From", render: ({ dead_letter: from }) => (hasPlace(from) ? h("a", { href: recordAddress(from.topic, from) }, `${from.topic}-${from.partition} / ${format.count(from.offset)}`) : format.NOTHING) },
        { label: "Why", whole: true, render: (row) => row.dead_letter.reason },
        { label: "Delivered", render: (row) => format.times(row.dead_letter.deliveries) },
        { label: "Key", render: (row) => row.key.text ?? format.NOTHING },
        { label: "Again", render: (row) => (isSent(row) ? badge("sent", "ok") : send && hasPlace(row.dead_letter) ? button("Send again …", () => send([row]), { kind: "small" }) : format.NOTHING) },
      ],
    }),
  ];
}

function hasPlace({ topic, partition, offset }) {
  return topic !== null && partition !== null && offset !== null;
}

/** Write records to where they came from, once somebody has seen where that is. */
async function sendAgain(data, records, sent) {
  const { topic, copies } = data.dead_letters;
  const targets = [...new Set(records.map((each) => each.dead_letter.topic))].sort();
  const done = await dialog({
    title: records.length === 1 ? "Send the record again" : `Send ${records.length} records again`, action: "Send",
    body: () => [
      h("p", `Written to ${targets.join(", ")}, as new records of the partitions they came from: everybody who reads these topics gets them. Mend the reader first, or they come back.`),
      h("p.muted", copies ? "A dead letter has no headers of its record, and stays where it is." : "The dead letter stays where it is."),
    ],
    submit: () => post(path("/api/groups/{group}/dead-letters/send", { group: data.group }), { topic, records: records.map((each) => [each.partition, each.offset]) }),
  });
  if (!done) return false;
  for (const each of done.results) if (!each.error) sent.add(`${each.partition} ${each.offset}`);
  const failed = done.results.find((each) => each.error);
  toast(`Sent ${format.plural(done.sent, "record")} again`, { kind: failed ? "bad" : "ok", hint: failed && `${format.plural(records.length - done.sent, "record")} not: ${failed.error}` });
  return true;
}
