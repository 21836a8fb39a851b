// Tables whose rows the server sorts, filters and pages. What is chosen is in the address.
// Keys: / goes to the filter, ↑ ↓ go along the rows, Enter opens one, PageUp and PageDown turn pages.

import { freshId, h, replace } from "./dom.js";
import { icon } from "./icons.js";
import { errorNotice } from "./components.js";
import * as format from "./format.js";
import { setQuery } from "./router.js";

const WAIT_MS = 180; // after a key in the filter

/**
 * columns: [{key, label, sort, num, render(row), whole, wide, optional}] – `sort` is the server's name of the column; an
 * `optional` one without a value is left out on a phone.
 * load({page, size, sort, filter}) → {rows, page, pages, matching, total, sort}.
 */
export function serverTable({ caption, columns, load, empty, query, filterLabel = null, size = 50, keyOf, extras = [], noun = "row", prefix = "" }) {
  const name = (each) => prefix + each;
  const state = { page: Number(query.get(name("page"))) || 1, sort: query.get(name("sort")) || "", filter: query.get(name("filter")) || "" };
  const body = h("tbody");
  const headings = h("tr");
  const table = h("table.cards", h("caption.hidden-text", caption), h("thead", headings), body);
  const box = h("div.table-box", table);
  const emptyBox = h("div", { hidden: true });
  const problem = h("div");
  const status = h("span", { role: "status" });
  const earlier = h("button.small", { type: "button", "aria-label": "Previous page", onclick: () => turn(-1) }, icon("left"));
  const later = h("button.small", { type: "button", "aria-label": "Next page", onclick: () => turn(1) }, icon("right"));
  const where = h("span");
  const pages = h("div.pages", { hidden: true }, earlier, where, later);
  const foot = h("div.table-foot", status, pages);
  const filterId = freshId("filter");
  const input = h("input", { id: filterId, type: "search", placeholder: filterLabel ?? "", value: state.filter, autocomplete: "off", spellcheck: "false", "aria-label": filterLabel, data: { filter: "" } });
  let last = null;
  let asked = 0;

  function drawHeadings(sort) {
    const [column, descending] = sort?.startsWith("-") ? [sort.slice(1), true] : [sort, false];
    const focused = headings.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    replace(headings, columns.map((each) => {
      const current = each.sort && each.sort === column;
      const heading = h("th", { scope: "col", class: each.num ? "num" : "", "aria-sort": current ? (descending ? "descending" : "ascending") : undefined });
      if (!each.sort) heading.append(each.label);
      else {
        const next = current ? (descending ? each.sort : `-${each.sort}`) : each.num ? `-${each.sort}` : each.sort;
        heading.append(h("button.sort", { type: "button", data: { sort: each.sort }, onclick: () => change({ sort: next, page: 1 }) }, each.label, icon(current && descending ? "down" : "up")));
      }
      return heading;
    }));
    if (focused) headings.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  function drawRows(answer) {
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
    replace(body, answer.rows.map((row) => h("tr", { data: { key: keyOf(row) } }, columns.map((column, at) => cell(column, at, row)))));
    if (focused) [...body.rows].find((row) => row.dataset.key === focused)?.querySelector("a, button")?.focus({ preventScroll: true });
    const nothing = answer.rows.length === 0;
    box.hidden = nothing;
    emptyBox.hidden = !nothing;
    if (nothing) replace(emptyBox, state.filter ? h("div.empty", h("h2", `No ${noun} matches “${state.filter}”`), h("button", { type: "button", onclick: clear }, "Show all")) : empty());
    const shown = nothing ? "" : `${format.plural(answer.matching, noun)}${answer.matching !== answer.total ? ` of ${format.count(answer.total)}` : ""}`;
    if (status.textContent !== shown) status.textContent = shown;
    pages.hidden = answer.pages <= 1;
    where.textContent = `${format.count(answer.page)} of ${format.count(answer.pages)}`;
    earlier.disabled = answer.page <= 1;
    later.disabled = answer.page >= answer.pages;
  }

  async function refresh() {
    asked += 1;
    const mine = asked;
    box.classList.add("loading");
    try {
      const answer = await load({ page: state.page, size, sort: state.sort, filter: state.filter });
      if (mine !== asked) return;
      if (answer.page > answer.pages && answer.pages > 0) { // there are fewer rows than when this page was chosen
        await change({ page: answer.pages });
        return;
      }
      last = answer;
      replace(problem);
      drawHeadings(answer.sort);
      drawRows(answer);
    } catch (error) {
      if (error.name !== "AbortError" && mine === asked) replace(problem, errorNotice(error));
    } finally {
      if (mine === asked) box.classList.remove("loading");
    }
  }

  function change(changes) {
    Object.assign(state, changes);
    setQuery({ [name("page")]: state.page > 1 ? state.page : null, [name("sort")]: state.sort, [name("filter")]: state.filter });
    return refresh();
  }

  function turn(step) {
    if (!last || state.page + step < 1 || state.page + step > last.pages) return;
    change({ page: state.page + step });
  }

  function clear() {
    input.value = "";
    change({ filter: "", page: 1 });
    input.focus();
  }

  let timer = null;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ filter: input.value, page: 1 }), WAIT_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      body.querySelector("tr a, tr button")?.focus();
    }
  });
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (step && row) {
      event.preventDefault();
      const other = row[step];
      if (other) other.querySelector("a, button")?.focus();
      else if (event.key === "ArrowUp") input.focus();
    } else if (event.key === "PageDown") turn(1);
    else if (event.key === "PageUp") turn(-1);
    else return;
    if (event.key.startsWith("Page")) event.preventDefault();
  });

  drawHeadings(state.sort);
  const toolbar = h("div.toolbar", filterLabel && h("div.search", icon("search"), input), extras);
  const element = h("div.stack", toolbar.childNodes.length ? toolbar : null, problem, box, emptyBox, foot);
  return { element, refresh, change };
}

/** A cell; on a phone its label stands beside it, because there are no headings. */
function cell(column, at, row) {
  const content = column.render ? column.render(row) : row[column.key] ?? format.NOTHING;
  const kind = [column.optional && content === format.NOTHING && "nothing", column.num && "num", (column.whole || at === 0) && "whole", column.wide && "wide", column.named && "named", column.class].filter(Boolean).join(" ");
  return h(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : undefined, class: kind, data: { label: column.label } }, content);
}

/** A table of rows that are all here. */
export function plainTable({ caption, columns, rows, keyOf = (row) => row.key ?? "" }) {
  return h("div.table-box", h("table.cards", h("caption.hidden-text", caption),
    h("thead", h("tr", columns.map((column) => h("th", { scope: "col", class: column.num ? "num" : "" }, column.label)))),
    h("tbody", rows.map((row) => h("tr", { data: { key: keyOf(row) } }, columns.map((column, at) => cell(column, at, row)))))));
}
