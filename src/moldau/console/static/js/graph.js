// A graph of steps, drawn from left to right: each node stands after everything that flows into it.

import { s } from "./dom.js";
import * as format from "./format.js";

const BOX = { width: 168, height: 44 };
const GAP = { x: 76, y: 18 };

/** The column of each node: one more than the furthest of those that flow into it. Circles are cut where they close. */
export function layers(nodes, edges) {
  const column = new Map();
  const into = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) into.get(edge.to)?.push(edge.from);
  const visit = (id, path) => {
    if (column.has(id)) return column.get(id);
    if (path.has(id)) return 0;
    const before = (into.get(id) ?? []).filter((each) => into.has(each)).map((each) => visit(each, new Set([...path, id])));
    const value = before.length ? Math.max(...before) + 1 : 0;
    column.set(id, value);
    return value;
  };
  for (const node of nodes) visit(node.id, new Set());
  return column;
}

export function graph(nodes, edges, label) {
  const column = layers(nodes, edges);
  const columns = [];
  for (const node of nodes) (columns[column.get(node.id)] ??= []).push(node);
  const tallest = Math.max(...columns.map((each) => each.length), 1);
  const width = columns.length * (BOX.width + GAP.x) - GAP.x + 2;
  const height = tallest * (BOX.height + GAP.y) - GAP.y + 2;
  const place = new Map();
  columns.forEach((each, x) => each.forEach((node, y) => {
    const top = (height - each.length * (BOX.height + GAP.y) + GAP.y) / 2;
    place.set(node.id, [1 + x * (BOX.width + GAP.x), top + y * (BOX.height + GAP.y)]);
  }));
  const words = edges.map((edge) => `${edge.from} to ${edge.to}, ${format.rate(edge.rows_per_second)}`).join("; ");
  const picture = s("svg.flow", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${label}: ${words}` });
  for (const edge of edges) if (place.has(edge.from) && place.has(edge.to)) picture.append(...edgeNodes(edge, place));
  for (const node of nodes) picture.append(box(node, place.get(node.id)));
  return picture;
}

function edgeNodes(edge, place) {
  const [fromX, fromY] = place.get(edge.from);
  const [toX, toY] = place.get(edge.to);
  const [x1, y1, x2, y2] = [fromX + BOX.width, fromY + BOX.height / 2, toX, toY + BOX.height / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  const flowing = edge.rows_per_second > 0;
  const parts = [s("path.edge", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, class: flowing ? "flowing" : "" })];
  if (edge.rows_per_second !== null && edge.rows_per_second !== undefined) {
    parts.push(s("text.edge-text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 6, "text-anchor": "middle" }, format.rate(edge.rows_per_second)));
  }
  return parts;
}

function box(node, [x, y]) {
  return s("g", s("title", `${node.kind}: ${node.label}`),
    s("rect.node", { x, y, width: BOX.width, height: BOX.height, rx: 7, class: `kind-${String(node.kind).replace(/\W/g, "")}` }),
    s("text.kind", { x: x + 12, y: y + 17 }, node.kind),
    s("text", { x: x + 12, y: y + 33 }, format.shortened(String(node.label), 22)));
}
