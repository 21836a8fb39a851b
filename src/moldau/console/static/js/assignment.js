// Who reads what, drawn: members on the left, partitions on the right, a curve for each that is assigned.

import { h, s } from "./dom.js";
import * as format from "./format.js";

const ROW = 26;
const BOX = 20;
const WIDE = { width: 860, left: 230, right: 280, letters: 30 };
const PHONE = { width: 340, left: 104, right: 140, letters: 13 };
export const DRAWN = 48;

/** Who reads a partition: one member of a group, or several of a share group. */
export function readersOf(partition) {
  return partition.members ?? [partition.member].filter(Boolean);
}

/** members: [{member_id, name, host}], partitions: [{topic, partition, member or members, lag}] → an SVG that says it in words too. */
export function assignment(all, partitions) {
  const size = innerWidth < 640 ? PHONE : WIDE;
  const drawn = [...partitions].slice(0, DRAWN).sort((a, b) => (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition));
  const first = (member) => (drawn.findIndex((each) => readersOf(each).includes(member.member_id)) + 1 || drawn.length + 1);
  const members = [...all].sort((a, b) => first(a) - first(b)).slice(0, DRAWN); // in this order few curves cross
  const rows = Math.max(members.length, drawn.length, 1);
  const height = rows * ROW + 8;
  const y = (index, of) => 4 + (rows * ROW * (index + 0.5)) / of;
  const place = new Map(members.map((member, index) => [member.member_id, index]));
  const words = members.map((member) => `${member.name}: ${drawn.filter((each) => readersOf(each).includes(member.member_id)).map((each) => `${each.topic}-${each.partition}`).join(", ") || "nothing"}`).join("; ");
  const picture = s("svg.assignment", { viewBox: `0 0 ${size.width} ${height}`, role: "img", "aria-label": `Assignment. ${words}` });
  const top = Math.max(...drawn.map((each) => each.lag ?? 0), 1);
  drawn.forEach((each, index) => {
    const at = y(index, drawn.length);
    const [x1, x2] = [size.left, size.width - size.right];
    const bend = (x2 - x1) / 2;
    for (const owner of readersOf(each).map((id) => place.get(id)).filter((found) => found !== undefined)) {
      const from = y(owner, members.length);
      picture.append(s(`path.tie.s${(owner % 6) + 1}`, { d: `M${x1} ${from}C${x1 + bend} ${from} ${x2 - bend} ${at} ${x2} ${at}`, style: { fill: "none" } }));
    }
  });
  members.forEach((member, index) => picture.append(memberBox(member, index, y(index, members.length), size)));
  drawn.forEach((each, index) => picture.append(partitionBox(each, y(index, drawn.length), place.get(readersOf(each)[0]), top, size)));
  return h("div.stack", h("div.drawing", picture), partitions.length > DRAWN && h("p.muted", `The ${DRAWN} partitions with the most lag of ${format.count(partitions.length)} are drawn; the table has more.`));
}

function memberBox(member, index, y, size) {
  return s("g", s("title", `${member.member_id}${member.host ? ` on ${member.host}` : ""}`),
    s("rect.node", { x: 0, y: y - BOX / 2, width: size.left, height: BOX, rx: 5 }),
    s(`rect.s${(index % 6) + 1}`, { x: 0, y: y - BOX / 2, width: 4, height: BOX, rx: 2 }),
    s("text", { x: 12, y: y + 4 }, format.shortened(member.name, size.letters)));
}

function partitionBox(each, y, owner, top, size) {
  const x = size.width - size.right;
  const group = s("g", s("title", `${each.topic}-${each.partition}: lag ${format.count(each.lag)}`),
    s("rect.node", { x, y: y - BOX / 2, width: size.right, height: BOX, rx: 5, class: owner === undefined ? "nobody" : "" }));
  if (each.lag > 0) group.append(s("rect.lag-bar", { x: x + 1, y: y + BOX / 2 - 3, width: Math.max(2, (size.right - 2) * (each.lag / top)), height: 2 }));
  group.append(s("text", { x: x + 10, y: y + 4 }, format.shortened(`${each.topic} ${each.partition}`, size.letters)),
    s("text.lag-text", { x: size.width - 8, y: y + 4, "text-anchor": "end" }, owner === undefined ? "nobody" : each.lag === null ? "" : size === PHONE ? format.short(each.lag) : `${format.short(each.lag)} behind`));
  return group;
}
