// The stage of the page Learn: a producer, the partitions of a topic as lanes that fill, and a group's consumers.

import { freshId, h, replace, s } from "./dom.js";
import * as format from "./format.js";

const LANE = 58;
const SQUARE = 16;
const STEP = 20;
const DOTS_MAX = 80; // that fly at once
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A key has one of six colours, always the same. */
export function colourOf(key) {
  if (key === null || key === undefined) return "plain";
  let hash = 7;
  for (const letter of String(key)) hash = (hash * 31 + letter.codePointAt(0)) % 9973;
  return `s${(hash % 6) + 1}`;
}

export class Stage {
  constructor() {
    this.lanes = new Map(); // partition → [{offset, key, read}]
    this.partitions = [];
    this.consumers = [];
    this.picture = s("svg.stage", { role: "img", id: freshId("stage") });
    this.element = h("div.stage-box", this.picture);
    this.dots = 0;
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  geometry() {
    const width = Math.max(300, this.element.clientWidth || 900);
    const narrow = width < 560;
    const left = narrow ? 62 : 120;
    const right = narrow ? 74 : 170;
    const gap = narrow ? 16 : 60;
    const lanes = { x: left + gap, width: width - left - right - 2 * gap };
    const rows = Math.max(this.partitions.length, this.consumers.length, 1);
    return { width, narrow, left, right, lanes, height: rows * LANE + 12, rows, fits: Math.max(2, Math.floor((lanes.width - 8) / STEP)) };
  }

  laneY(index, g) {
    return 6 + (g.rows * LANE * (index + 0.5)) / Math.max(1, this.partitions.length);
  }

  consumerY(index, g) {
    return 6 + (g.rows * LANE * (index + 0.5)) / Math.max(1, this.consumers.length);
  }

  update(partitions, consumers) {
    this.partitions = partitions;
    this.consumers = consumers;
    for (const { partition, start } of partitions) {
      const lane = this.lanes.get(partition) ?? [];
      this.lanes.set(partition, lane.filter((each) => each.offset >= start));
    }
    this.draw();
  }

  clear() {
    this.lanes.clear();
    this.draw();
  }

  /** A record was written, or a consumer has read it. The same record may be told twice. */
  record({ partition, offset, key, consumer = null }, { fly = true } = {}) {
    const lane = this.lanes.get(partition) ?? [];
    this.lanes.set(partition, lane);
    let known = lane.find((each) => each.offset === offset);
    if (!known) {
      known = { offset, key, read: false };
      lane.push(known);
      lane.sort((a, b) => a.offset - b.offset);
      while (lane.length > 100) lane.shift();
      if (fly) this.fly("producer", partition, key);
    }
    if (consumer !== null && !known.read) {
      known.read = true;
      if (fly) this.fly(partition, consumer, key);
    }
    this.soon();
  }

  /** Draw once, however many records came. */
  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const g = this.geometry();
    const old = this.flying;
    this.flying = old ?? s("g.flying");
    this.picture.setAttribute("viewBox", `0 0 ${g.width} ${g.height}`);
    this.picture.setAttribute("height", g.height);
    this.picture.setAttribute("aria-label", this.words());
    const parts = [this.producer(g)];
    this.partitions.forEach((each, index) => parts.push(...this.ties(each, index, g)));
    this.partitions.forEach((each, index) => parts.push(this.lane(each, index, g)));
    this.consumers.forEach((each, index) => parts.push(this.consumer(each, index, g)));
    if (!this.consumers.length) parts.push(this.nobody(g));
    replace(this.picture, parts, this.flying);
  }

  words() {
    const lanes = this.partitions.map((each) => `partition ${each.partition} ends at offset ${each.end}`).join(", ");
    const readers = this.consumers.map((each) => `${each.name} reads ${each.partitions.length ? each.partitions.join(" and ") : "nothing"}`).join(", ");
    return `A producer writes; ${lanes}. ${readers}`;
  }

  producer(g) {
    const y = g.height / 2;
    return s("g", s("rect.node", { x: 1, y: y - 22, width: g.left - 2, height: 44, rx: 8 }), s("text", { x: g.left / 2, y: y + 4, "text-anchor": "middle" }, "producer"));
  }

  nobody(g) {
    const y = g.height / 2;
    return s("g", s("rect.node.idle", { x: g.width - g.right, y: y - 20, width: g.right - 1, height: 40, rx: 8 }),
      s("text.sub", { x: g.width - g.right / 2, y: y + 4, "text-anchor": "middle" }, g.narrow ? "nobody" : "no consumer yet"));
  }

  ties(each, index, g) {
    const y = this.laneY(index, g);
    const curve = (x1, y1, x2, y2) => `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
    const parts = [s("path.tie.quiet", { d: curve(g.left, g.height / 2, g.lanes.x, y) })];
    const owner = this.consumers.findIndex((consumer) => consumer.partitions.includes(each.partition));
    if (owner >= 0) parts.push(s("path.tie.own", { d: curve(g.lanes.x + g.lanes.width, y, g.width - g.right, this.consumerY(owner, g)) }));
    return parts;
  }

  lane(each, index, g) {
    const y = this.laneY(index, g);
    const squares = (this.lanes.get(each.partition) ?? []).slice(-g.fits);
    const first = squares[0]?.offset ?? 0;
    const group = s("g", s("rect.lane", { x: g.lanes.x, y: y - 14, width: g.lanes.width, height: 28, rx: 6, class: each.leader === null ? "bad" : "" }),
      s("text.lane-name", { x: g.lanes.x + 2, y: y - 19 }, g.narrow ? `${each.partition}` : `partition ${each.partition} · leader ${each.leader ?? "none"} · in sync ${each.isr.join(", ")}`),
      s("text.lane-end", { x: g.lanes.x + g.lanes.width - 2, y: y - 19, "text-anchor": "end" }, g.narrow ? format.count(each.end) : `next offset ${format.count(each.end)}`));
    squares.forEach((record, at) => {
      group.append(s(`rect.record.${colourOf(record.key)}`, { x: g.lanes.x + 6 + at * STEP, y: y - SQUARE / 2, width: SQUARE, height: SQUARE, rx: 4, class: record.read ? "read" : "" },
        s("title", `offset ${record.offset}${record.key === null ? "" : `, key ${record.key}`}${record.read ? ", read" : ""}`)));
    });
    if (first > 0) group.append(s("text.lane-more", { x: g.lanes.x - 4, y: y + 4, "text-anchor": "end" }, "…"));
    return group;
  }

  consumer(each, index, g) {
    const y = this.consumerY(index, g);
    const x = g.width - g.right;
    return s("g", s("rect.node", { x, y: y - 20, width: g.right - 1, height: 40, rx: 8, class: each.partitions.length ? "" : "idle" }),
      s("text", { x: x + g.right / 2, y: y - 3, "text-anchor": "middle" }, g.narrow ? each.name.replace("consumer-", "c-") : each.name),
      s("text.sub", { x: x + g.right / 2, y: y + 12, "text-anchor": "middle" }, g.narrow ? format.short(each.received) : each.partitions.length ? `${format.count(each.received)} read` : "no partition: idle"));
  }

  /** A dot from the producer to a lane, or from a lane to its consumer. */
  fly(from, to, key) {
    if (still() || document.hidden || this.dots >= DOTS_MAX || !this.flying) return;
    const g = this.geometry();
    const lane = (partition) => this.partitions.findIndex((each) => each.partition === partition);
    const away = from === "producer";
    const index = lane(away ? to : from);
    if (index < 0) return;
    const y = this.laneY(index, g);
    const reader = away ? -1 : this.consumers.findIndex((each) => each.name === to);
    if (!away && reader < 0) return;
    const start = away ? [g.left, g.height / 2] : [g.lanes.x + g.lanes.width, y];
    const end = away ? [g.lanes.x + Math.min(g.fits, (this.lanes.get(to) ?? []).length) * STEP, y] : [g.width - g.right, this.consumerY(reader, g)];
    const dot = s(`circle.dot.${colourOf(key)}`, { r: 5 });
    this.flying.append(dot);
    this.dots += 1;
    const at = ([x, top]) => `translate(${x}px, ${top}px)`;
    const flight = dot.animate([{ transform: at(start) }, { transform: at(end) }], { duration: 550, easing: "ease-in-out" });
    flight.onfinish = flight.oncancel = () => {
      dot.remove();
      this.dots -= 1;
    };
  }
}
