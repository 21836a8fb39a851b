// Dialogs of changes that are shown as a plan first. The plan is what the server would do; the next press does exactly that.

import { h, replace } from "./dom.js";
import { StayOpen, dialog } from "./dialog.js";
import { words } from "./components.js";

const SHOW = "Show the plan";

/**
 * fields(form) gives the fields, bodyOf(data) the request without `execute`, secretOf(data) what only the execution needs.
 * send(body) asks the server; shown(answer) draws the plan, action(answer) is the text of the button that carries it out.
 * With `planned`, the answer to a request without fields, the plan is shown at once.
 */
export function planDialog({ title, fields = () => [], bodyOf, secretOf = () => ({}), send, shown, action, danger = false, wide = true, planned = null }) {
  const plan = h("div", { role: "status" });
  let agreed = null;
  let button = null;

  function forget(event) {
    if (event?.target.type === "password") return; // no part of the plan
    agreed = null;
    replace(plan);
    button.textContent = SHOW;
  }

  function draw(answer, body) {
    const isChange = answer.changes.length > 0;
    agreed = isChange ? JSON.stringify(body) : null;
    replace(plan, h("div.stack",
      h("h3", isChange ? "The plan: nothing has changed yet" : "Nothing would change."),
      isChange && shown(answer), notesOf(answer)));
    if (isChange) button.textContent = action(answer);
  }

  return dialog({
    title, action: SHOW, wide, danger,
    body: (form) => {
      form.addEventListener("input", forget);
      queueMicrotask(() => {
        button = form.querySelector("button[type=submit]");
        if (planned) draw(planned, bodyOf(new FormData(form)));
      });
      return [fields(form), plan];
    },
    submit: async (data) => {
      const body = bodyOf(data);
      const execute = agreed === JSON.stringify(body);
      const answer = await send(execute ? { ...body, ...secretOf(data), execute } : body);
      if (answer.executed) return answer;
      draw(answer, body);
      throw new StayOpen();
    },
  });
}

/** What is easily overlooked, a line each. */
function notesOf(answer) {
  return answer.notes.length > 0 && h("ul.notes", answer.notes.map((note) => h("li", words(note))));
}
