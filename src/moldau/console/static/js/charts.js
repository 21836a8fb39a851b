// Charts as SVG, drawn here: a spark in a table, lines over time with a pointer to read them, bars.

import { freshId, h, replace, s } from "./dom.js";
import * as format from "./format.js";

const WIDTH = 640; // of the drawing; it is redrawn at the width it really has
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 6;

/** A small line of the last values, oldest first. */
export function spark(values, label) {
  const known = (values ?? []).filter((value) => value !== null);
  const picture = s("svg.spark", { viewBox: "0 0 84 22", role: "img", preserveAspectRatio: "none", "aria-label": label ? `${label}: ${summary(known)}` : summary(known) });
  if (known.length < 2) return picture;
  const top = Math.max(...known, 1e-9);
  const points = values.map((value, index) => [(index / (values.length - 1)) * 84, value === null ? null : 20 - (value / top) * 18]);
  const line = pathOf(points);
  picture.append(s("path.area", { d: `${line}L84 21L0 21Z` }), s("path", { d: line }));
  return picture;
}

function summary(values, show = format.short) {
  if (!values.length) return "no data yet";
  return `now ${show(values.at(-1))}, highest ${show(Math.max(...values))}`;
}

/** A path through points; it is broken where a value is unknown. */
function pathOf(points) {
  let down = false;
  return points.map(([x, y]) => {
    if (y === null) {
      down = false;
      return "";
    }
    const step = `${down ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    down = true;
    return step;
  }).join("");
}

/** Steps of 1, 2 or 5 times a power of ten. */
export function niceTop(value, base = 10) {
  if (!(value > 0)) return base === 10 ? 1 : base;
  const unit = base === 10 ? 1 : base ** Math.floor(Math.log(value) / Math.log(base)); // of bytes: KiB, MiB …
  const power = 10 ** Math.floor(Math.log10(value / unit));
  const top = [1, 2, 5, 10].map((step) => step * power * unit).find((step) => step >= value * 0.999);
  return base !== 10 && top >= 1000 * unit ? base * unit : top;
}

/**
 * Lines over time. `update({times, series: [{name, values}]})` draws; times are in ms. Arrow keys and the pointer read
 * single values; a screen reader hears the newest and the highest.
 */
export function lineChart({ label, show = format.short, height = 150, base = 10 }) {
  const picture = s("svg", { role: "img", tabindex: "0", height });
  const tip = h("div.tip", { hidden: true });
  const legend = h("div.legend");
  const box = h("div.chart", picture, tip);
  let data = { times: [], series: [] };
  let index = null;

  function width() {
    return Math.max(200, box.clientWidth || WIDTH);
  }

  function draw() {
    const { times, series } = data;
    const w = width();
    const values = series.flatMap((each) => each.values).filter((value) => value !== null && value !== undefined);
    picture.setAttribute("viewBox", `0 0 ${w} ${height}`);
    picture.setAttribute("aria-label", `${label}. ${series.map((each) => `${series.length > 1 ? `${each.name}: ` : ""}${summary(each.values.filter((v) => v !== null && v !== undefined), show)}`).join("; ")}`);
    if (times.length < 2 || !values.length) {
      const words = s("text", { x: w / 2, y: height / 2, "text-anchor": "middle" }, "Collecting: the first values come within seconds");
      replace(picture, words);
      return;
    }
    const top = niceTop(Math.max(...values), base);
    const left = 16 + 6.4 * Math.max(show(top).length, show(top / 2).length, 3);
    data.left = left;
    const from = times[0];
    const span = Math.max(1, times.at(-1) - from);
    const x = (time) => left + ((time - from) / span) * (w - left - RIGHT);
    const y = (value) => height - BOTTOM - (value / top) * (height - BOTTOM - TOP);
    data.x = x;
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      parts.push(s("line.grid-line", { x1: left, x2: w - RIGHT, y1: y(top * share), y2: y(top * share) }),
        s("text", { x: left - 8, y: y(top * share) + 4, "text-anchor": "end" }, show(top * share)));
    }
    const marks = w < 420 ? [0, 1] : [0, 0.5, 1];
    for (const share of marks) {
      const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
      parts.push(s("text", { x: left + share * (w - left - RIGHT), y: height - 4, "text-anchor": anchor }, format.clock(from + share * span)));
    }
    series.forEach((each, number) => {
      const points = each.values.map((value, at) => [x(times[at]), value === null || value === undefined ? null : y(value)]);
      const line = pathOf(points);
      const kind = `s${(number % 6) + 1}`;
      if (series.length === 1 && points.every((point) => point[1] !== null)) {
        parts.push(s(`path.area.${kind}`, { d: `${line}L${x(times.at(-1)).toFixed(1)} ${y(0)}L${left} ${y(0)}Z` }));
      }
      parts.push(s(`path.series.${kind}`, { d: line, style: { fill: "none" } }));
    });
    if (index !== null && index < times.length) {
      parts.push(s("line.cross", { x1: x(times[index]), x2: x(times[index]), y1: TOP, y2: height - BOTTOM }));
    }
    replace(picture, parts);
  }

  function point(at) {
    index = at;
    tip.hidden = at === null || !data.x || at >= data.times.length;
    draw();
    if (tip.hidden) return;
    replace(tip, h("div.muted", format.moment(data.times[at])),
      data.series.map((each, number) => h("div", h(`i.s${(number % 6) + 1}`), data.series.length > 1 && `${each.name} `, h("strong", show(each.values[at])))));
    const left = data.x(data.times[at]);
    const flipped = left > width() / 2;
    tip.style.setProperty("left", flipped ? "auto" : `${left + 10}px`);
    tip.style.setProperty("right", flipped ? `${width() - left + 10}px` : "auto");
  }

  picture.addEventListener("pointermove", (event) => {
    if (!data.x) return;
    const share = (event.clientX - picture.getBoundingClientRect().left - data.left) / (width() - data.left - RIGHT);
    const time = data.times[0] + share * (data.times.at(-1) - data.times[0]);
    let best = 0;
    data.times.forEach((each, at) => { if (Math.abs(each - time) < Math.abs(data.times[best] - time)) best = at; });
    point(best);
  });
  picture.addEventListener("pointerleave", () => point(null));
  picture.addEventListener("blur", () => point(null));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !data.times.length) return;
    event.preventDefault();
    point(Math.min(data.times.length - 1, Math.max(0, (index ?? data.times.length) + step)));
  });
  new ResizeObserver(() => draw()).observe(box);

  const element = h("div.stack", { style: { gap: "6px" } }, box, legend);
  return {
    element,
    update({ times, series }) {
      data = { times: times ?? [], series: series.map((each) => ({ ...each, values: each.values ?? [] })) };
      if (index !== null && index >= data.times.length) index = null;
      draw();
      replace(legend, data.series.length > 1 ? data.series.map((each, number) => h("span", h(`i.s${(number % 6) + 1}`), each.name)) : []);
    },
  };
}

/** Bars beside each other's names: [{label, value, href}]. */
export function bars(label, rows, show = format.short) {
  const top = Math.max(...rows.map((row) => row.value ?? 0), 1e-9);
  return h("ul.bars", { "aria-label": label }, rows.map((row) => h("li",
    row.href ? h("a.label", { href: row.href, title: row.label }, row.label) : h("span.label", { title: row.label }, row.label),
    h("span.track", { "aria-hidden": "true" }, h("span.bar", { style: { width: `${Math.max(0, ((row.value ?? 0) / top) * 100)}%`, display: "block" } })),
    h("span.num", show(row.value)))));
}

/** A share of something, as a bar: how full a disk is, how far a copy has come. */
export function meter(share, words) {
  const id = freshId("meter");
  const kind = share > 0.9 ? "bad" : share > 0.8 ? "warn" : "";
  return h("div.meter", { class: kind, role: "img", "aria-label": words, id },
    h("span.fill", { style: { width: `${Math.min(100, Math.max(0, share * 100))}%` } }));
}
