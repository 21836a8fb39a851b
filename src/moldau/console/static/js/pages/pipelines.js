// Pipelines: what flows where and how fast, batches, watermarks, and records that did not parse.

import { get, path, post } from "../api.js";
import { button, empty, errorNotice, figures, head, lag, notice, state, whatIsLeft, words } from "../components.js";
import { spark } from "../charts.js";
import { append, h, replace } from "../dom.js";
import { StayOpen, dialog, field } from "../dialog.js";
import * as format from "../format.js";
import { graph } from "../graph.js";
import { link } from "../router.js";
import { plainTable } from "../table.js";
import { toast } from "../toast.js";

export async function pipelinesPage({ root, signal, crumbs, every, may }) {
  crumbs([["Pipelines"]]);
  const list = h("div.stack");
  let told = "";
  const refresh = async () => {
    try {
      const data = await get("/api/pipelines", { signal });
      const now = JSON.stringify(data);
      if (now === told) return;
      told = now;
      replace(list, data.rows.length ? data.rows.map((row) => pipeline(row, may)) : nothing(data));
    } catch (error) {
      if (error.name === "AbortError") return;
      told = ""; // the same answer must be drawn again
      replace(list, errorNotice(error));
    }
  };
  append(root, [head("Pipelines", { about: "Spark pipelines that turn topics into topics and lake tables." }), list]);
  await refresh();
  every(2, refresh);
}

function nothing(data) {
  return empty("No pipelines", h("p", words(data.empty ?? "")), h("p", "A pipeline is one YAML file with SQL in it: ", h("code", "moldau pipeline init"), " writes a commented one, ", h("code", "moldau pipeline run"), " runs it."));
}

function pipeline(row, may) {
  const again = row.dead_letters.filter((letters) => letters.records_at_most > 0);
  const named = (text, letters) => (row.dead_letters.length > 1 ? `${text} in ${letters.topic}` : text);
  return h("section.card", { "aria-label": row.name },
    h("header", h("h2", row.name), state(row.state), row.since_ms && h("span.muted", `since ${format.moment(row.since_ms)}`)),
    row.error && notice(row.state === "failed" ? "bad" : "info", words(row.error)),
    row.note && notice("warn", words(row.note)),
    row.other_cluster && notice("info", "A pipeline of another cluster", `It runs with ${row.other_cluster}. The console there shows its topics.`),
    figures([
      ["Rows", format.rate(row.rows_per_second)],
      ["Batch", row.batch === null || row.batch === undefined ? format.NOTHING : format.count(row.batch), !row.batch_seconds ? null : `took ${format.milliseconds(row.batch_seconds * 1000)}`],
      ["Watermark", row.watermark_ms ? format.moment(row.watermark_ms) : format.NOTHING, row.watermark_ms ? format.ago(row.watermark_ms) : "none", "text"],
      ["Lag", format.count(row.lag), "records"],
      ...row.dead_letters.map((letters) => [named("Dead letters", letters), atMost(letters.records_at_most), whereLettersAre(row, letters)]),
    ]),
    row.graph?.nodes?.length ? h("div.drawing", graph(row.graph.nodes, row.graph.edges, `Flow of ${row.name}`)) : null,
    row.queries?.length ? queries(row.queries) : null,
    row.sources?.length ? sources(row.sources) : null,
    row.sinks?.length ? sinks(row.sinks) : null,
    may && again.length ? h("div.row", again.map((letters) => button(`Send ${named("dead letters", letters)} again …`, () => sendAgain(letters.topic)))) : null);
}

/** Offsets are counted, of which some may be markers of transactions. */
function atMost(records) {
  return records > 0 ? `at most ${format.count(records)}` : format.count(records);
}

function whereLettersAre(row, letters) {
  if (row.other_cluster) return `in topic ${letters.topic} of another cluster`;
  return letters.records_at_most === null ? "the topic is not there, or not read yet" : h("a", { href: link("topics", letters.topic, "records") }, "Look at them");
}

function queries(rows) {
  return plainTable({
    caption: "Queries", rows, keyOf: (row) => row.name,
    columns: [
      { label: "Query", render: (row) => row.name },
      { label: "State", render: (row) => state(row.state) },
      { label: "Rows", num: true, wide: true, render: (row) => h("span.with-spark", spark(row.rates, "Rows per second"), h("span.fixed", format.rate(row.rows_per_second))) },
      { label: "Batch", num: true, render: (row) => format.count(row.batch) },
      { label: "Took", num: true, render: (row) => format.milliseconds(row.batch_seconds === null ? null : row.batch_seconds * 1000) },
      { label: "Lag", num: true, render: (row) => lag(row) },
      { label: "Rows in state", num: true, render: (row) => format.count(row.state_rows) },
      { label: "Bad records", num: true, render: (row) => warned(row.bad_records) },
      { label: "Restarts", num: true, render: (row) => format.count(row.restarts) },
      { label: "Error", whole: true, optional: true, render: (row) => problem(row) },
    ],
  });
}

/** Each stream that each query reads. A database is behind in bytes of its log. */
function sources(rows) {
  return plainTable({
    caption: "Sources", rows, keyOf: (row) => `${row.name} ${row.query}`,
    columns: [
      { label: "Source", render: (row) => row.name },
      { label: "Query", render: (row) => row.query },
      { label: "Rows", num: true, render: (row) => format.rate(row.rows_per_second) },
      { label: "Read", num: true, render: (row) => format.count(row.rows) },
      { label: "Lag", num: true, render: (row) => (row.lag_bytes === null ? lag(row) : `${format.bytes(row.lag_bytes)} of the log`) },
      { label: "Last change", num: true, render: (row) => (row.last_change_ms === null ? format.NOTHING : format.ago(row.last_change_ms)) },
      { label: "Bad records", num: true, render: (row) => warned(row.bad_records) },
    ],
  });
}

function sinks(rows) {
  return plainTable({
    caption: "Sinks", rows, keyOf: (row) => row.name,
    columns: [
      { label: "Sink", render: (row) => row.name },
      { label: "Rows", num: true, render: (row) => format.rate(row.rows_per_second) },
      { label: "Written", num: true, render: (row) => format.count(row.rows) },
      { label: "Retries", num: true, render: (row) => warned(row.retries) },
      { label: "Dead letters", num: true, render: (row) => warned(row.dead_letters) },
      { label: "Last error", whole: true, optional: true, render: (row) => problem(row) },
    ],
  });
}

/** A number that should be 0. */
function warned(value) {
  return h("span", { class: value ? "warn-text" : "" }, format.count(value));
}

/** Why a query waits, or else the last error. */
function problem(row) {
  if (row.waiting) return h("span.warn-text", words(row.waiting));
  return row.error ? h("span.bad-text", words(row.error)) : format.NOTHING;
}

/** Replay to the topic they came from, once its count was shown. */
async function sendAgain(topic) {
  const plan = h("p", { role: "status" }, "First count them; nothing is written before you have seen it.");
  let planned = null;
  const done = await dialog({
    title: "Send dead letters again", action: "Count",
    body: () => [
      h("p", `Copies records of ${topic} to a topic. Mend the reader or the schema first, or they come back.`),
      field("To topic", h("input", { name: "to", required: true, spellcheck: "false", autocomplete: "off" })), plan,
    ],
    submit: async (data, form) => {
      const body = { to: data.get("to").trim(), from: "start", limit: 10000 };
      const sure = planned === body.to;
      const answer = await post(path("/api/topics/{topic}/replay", { topic }), { ...body, dry_run: !sure });
      if (sure) return answer;
      planned = body.to;
      plan.textContent = `${format.plural(answer.matching, "record")} would be copied to ${body.to}. ${whatIsLeft(answer)}`;
      form.querySelector("button[type=submit]").textContent = "Send them";
      throw new StayOpen();
    },
  });
  if (done) toast(`Sent ${format.plural(done.copied, "record")} again`, { kind: "ok", hint: whatIsLeft(done) });
}
