// Small pieces that most pages use.

import { h } from "./dom.js";
import { icon } from "./icons.js";
import * as format from "./format.js";

/** A page's heading: what it is, a line about it, and what can be done. */
export function head(title, { about = null, badges = [], actions = [] } = {}) {
  return h("div.page-head",
    h("div.titles", h("div.row", h("h1", title), badges), about && h("p", about)),
    h("div.row", actions));
}

/** A sentence of the server; what stands in `backticks` becomes code. */
export function words(text) {
  return String(text).split("`").map((part, at) => (at % 2 ? h("code.command", part) : part));
}

/** Figures side by side: [["Topics", "12", "2 internal"], …]. */
export function figures(items) {
  return h("dl.figures", items.filter(Boolean).map(([label, value, note, kind]) =>
    h("div.figure", h("dt", label), h("dd", { class: kind }, value), note && h("dd.note", note))));
}

export function card(title, ...content) {
  return h("section.card", h("header", typeof title === "string" ? h("h2", title) : title), content);
}

export function badge(text, kind = "") {
  return h("span.badge", { class: kind }, text);
}

export function notice(kind, title, what = null, extra = null) {
  return h(`div.notice.${kind}`, { role: kind === "bad" ? "alert" : undefined },
    icon(kind === "ok" ? "check" : kind === "info" ? "info" : "warning"),
    h("div", h("strong", title), what && h("div.do", what), extra));
}

/** What to show where there is nothing yet: what this is, and what to do. */
export function empty(title, ...words) {
  return h("div.empty", h("h2", title), words);
}

export function errorNotice(error, extra = null) {
  return notice("bad", words(error.message), error.hint ? words(error.hint) : null, extra);
}

export function tabs(label, items) {
  const bar = h("nav.tabs", { "aria-label": label }, items.map(([text, href, current]) =>
    h("a", { href, "aria-current": current ? "page" : undefined }, text)));
  // On a phone the bar is wider than the page.
  requestAnimationFrame(() => bar.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }));
  return bar;
}

export function pairs(items) {
  return h("dl.pairs", items.filter(Boolean).map(([name, value]) => [h("dt", name), h("dd", value ?? format.NOTHING)]));
}

export function button(text, action, { kind = "", iconName = null, disabled = false, title = null } = {}) {
  return h("button", { type: "button", class: kind, onclick: action, disabled, title }, iconName && icon(iconName), text);
}

/** How far behind: records, and the time if it is known. */
export function lag({ lag: records, ...time }) {
  if (records === null || records === undefined) return format.NOTHING;
  const kind = records === 0 ? "muted" : (time.lag_seconds ?? 0) > 60 ? "warn-text" : "";
  return h("span.nowrap", { class: kind }, format.count(records),
    records > 0 && (time.lag_seconds ?? null) !== null && h("span.muted", ` · ${format.age(time)}`));
}

/** Whether the cluster counts a broker as up, and whether it answers this console. */
export function brokerState(broker) {
  if (!broker.alive) return badge("down", "bad");
  return broker.answers ? badge("up", "ok") : badge("no answer", "warn");
}

const STATES = {
  Stable: "ok", Empty: "", Dead: "bad", PreparingRebalance: "warn", CompletingRebalance: "warn", Assigning: "warn", Reconciling: "warn",
  Ongoing: "accent", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "ok", CompleteAbort: "",
  running: "ok", failed: "bad", stopped: "", waiting: "warn", restarting: "warn", starting: "warn", finished: "",
};

export function state(name) {
  return name ? badge(name, STATES[name] ?? "") : format.NOTHING;
}

/** Why a replay may not have found all records, in words; nothing if it came to the end. */
export function whatIsLeft({ stopped }) {
  const why = { limit: "the limit is reached", work: "one replay reads 64 MiB at most, for 30 seconds" }[stopped];
  return why ? `There may be more: ${why}.` : "";
}

export async function copyText(text) {
  await navigator.clipboard.writeText(text);
}

export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const anchor = h("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  URL.revokeObjectURL(url);
}
