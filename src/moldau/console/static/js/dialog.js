// Dialogs on the browser's own <dialog>: it keeps the focus, closes on Escape and gives the focus back.

import { append, freshId, h, replace } from "./dom.js";
import { words } from "./components.js";
import { icon } from "./icons.js";

/** Thrown by submit: the dialog stays open, because it shows a plan that the next press carries out. */
export class StayOpen extends Error {}

/**
 * Show a dialog with a form. `body(form)` gives the fields; `submit(data, form)` does the work and may throw an error,
 * whose words are shown in the dialog. Resolves with what submit gave, or null if it was closed.
 */
export function dialog({ title, body, submit, action = "Save", danger = false, wide = false, cancel = "Cancel" }) {
  return new Promise((resolve) => {
    let result = null;
    const heading = freshId("dialog");
    const problem = h("div.problem", { role: "alert", hidden: true });
    const go = submit && h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const form = h("form", { method: "dialog" });
    const box = h("dialog", { "aria-labelledby": heading, class: wide ? "wide" : "" });
    const close = () => box.close();
    append(form, [
      h("header",
        h("h2", { id: heading }, title),
        h("button.icon-button", { type: "button", "aria-label": "Close", onclick: close }, icon("close"))),
      h("div.dialog-body", body(form), problem),
      h("footer", h("button", { type: "button", onclick: close }, submit ? cancel : "Close"), go),
    ]);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!submit || go.disabled) return;
      go.disabled = true;
      problem.hidden = true;
      try {
        result = (await submit(new FormData(form), form)) ?? true;
        box.close();
      } catch (error) {
        if (error instanceof StayOpen) return;
        replace(problem, words(error.message), error.hint ? h("div.muted", words(error.hint)) : null);
        problem.hidden = false;
      } finally {
        go.disabled = false;
      }
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    box.addEventListener("click", (event) => { if (event.target === box) close(); });
    box.append(form);
    document.body.append(box);
    box.showModal();
    form.querySelector(".dialog-body :is(input, select, textarea):not([type=hidden])")?.focus();
  });
}

/** Ask before something is lost; the person types the name of what will be. */
export function confirmByName({ title, name, sentence, action, submit }) {
  return dialog({
    title, action, danger: true,
    body: (form) => {
      const field = h("input", { name: "confirm", autocomplete: "off", spellcheck: "false" });
      queueMicrotask(() => {
        const go = form.querySelector("button[type=submit]");
        go.disabled = true;
        field.addEventListener("input", () => { go.disabled = field.value !== name; });
      });
      return [h("p", sentence), h("label.field", h("span", "Type ", h("code", name), " to go on"), field)];
    },
    submit,
  });
}

/** A labelled field of a form. The hint describes the field, it is not part of its name. */
export function field(label, control, { hint = "" } = {}) {
  control.id ||= freshId("field");
  const id = freshId("hint");
  if (hint) control.setAttribute("aria-describedby", id);
  return h("div.field", h("label", { for: control.id }, label), control, hint && h("small", { id }, hint));
}

export function select(name, options, chosen) {
  return h("select", { name }, options.map((option) => {
    const [value, label] = Array.isArray(option) ? option : [option, option];
    const item = h("option", { value }, label);
    if (String(value) === String(chosen)) item.selected = true;
    return item;
  }));
}
