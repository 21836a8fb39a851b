// Short messages that go away: said aloud by screen readers, kept until they could be read.

import { h } from "./dom.js";
import { words } from "./components.js";
import { icon } from "./icons.js";

let list = null;

export function toastRegion() {
  list = h("div.toasts", { role: "status", "aria-live": "polite" });
  return list;
}

export function toast(message, { kind = "info", hint = "" } = {}) {
  const note = h(`div.toast.${kind}`,
    icon(kind === "bad" ? "warning" : kind === "ok" ? "check" : "info"),
    h("div", h("div", words(message)), hint && h("div.muted", words(hint))),
    h("button.icon-button", { type: "button", "aria-label": "Dismiss", onclick: () => note.remove() }, icon("close")));
  list?.append(note);
  setTimeout(() => note.remove(), kind === "bad" ? 12000 : 5000);
  return note;
}

export function tellError(error) {
  if (error?.name === "AbortError") return;
  toast(error.message, { kind: "bad", hint: error.hint });
}
