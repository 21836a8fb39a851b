// Leaders and followers, drawn: a row for each broker, a column for each partition of a topic. Cells stay and change
// their colour, so that the eye sees a leadership move.

import { freshId, h, replace, s } from "./dom.js";

const CELL = 26;
const LEFT = 34;
const TOP = 20;

const WORDS = { leader: "leads", follower: "follows, in sync", behind: "not in sync", none: "" };

/** What a broker is for a partition. */
export function roleOf(partition, broker) {
  if (partition.leader === broker) return "leader";
  if (!partition.replicas.includes(broker)) return "none";
  return partition.isr.includes(broker) ? "follower" : "behind";
}

export function legend() {
  const sample = (role) => s("svg.sample", { viewBox: "0 0 16 16", "aria-hidden": "true" }, s("rect.cell", { x: 2, y: 2, width: 12, height: 12, rx: 3, class: role }));
  return h("div.legend", h("span", sample("leader"), "leads"), h("span", sample("follower"), "follows, in sync"), h("span", sample("behind"), "not in sync"));
}

/** The drawing of one topic; `update` changes what is there. */
function topicMatrix(topic, href) {
  const picture = s("svg.matrix", { role: "img" });
  const title = h("a", { href }, topic);
  const element = h("div.matrix-box", h("h3", title), h("div.drawing", picture));
  const cells = new Map();
  let shape = "";

  function build(partitions, brokers) {
    cells.clear();
    const width = LEFT + partitions.length * CELL;
    const height = TOP + brokers.length * CELL;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("width", width);
    picture.setAttribute("height", height);
    const parts = partitions.map((each, column) => s("text.column", { x: LEFT + column * CELL + CELL / 2 - 1, y: 12, "text-anchor": "middle" }, each.partition));
    brokers.forEach((broker, row) => {
      parts.push(s("text.broker-name", { x: LEFT - 12, y: TOP + row * CELL + 16, "text-anchor": "end" }, broker.id));
      partitions.forEach((each, column) => {
        const words = s("title");
        const cell = s("rect.cell", { x: LEFT + column * CELL + 2, y: TOP + row * CELL + 2, width: CELL - 6, height: CELL - 6, rx: 5 }, words);
        cells.set(`${each.partition} ${broker.id}`, [cell, words]);
        parts.push(cell);
      });
    });
    replace(picture, parts);
  }

  function update(partitions, brokers) {
    const now = JSON.stringify([partitions.map((each) => each.partition), brokers.map((broker) => broker.id)]);
    if (now !== shape) build(partitions, brokers);
    shape = now;
    for (const each of partitions) {
      for (const broker of brokers) {
        const [cell, words] = cells.get(`${each.partition} ${broker.id}`);
        const role = roleOf(each, broker.id);
        cell.setAttribute("class", `cell ${role}${broker.alive ? "" : " gone"}`);
        words.textContent = role === "none" ? "" : `${topic}-${each.partition}: broker ${broker.id} ${WORDS[role]}`;
      }
    }
    picture.setAttribute("aria-label", `${topic}: ${partitions.map((each) => `partition ${each.partition} ${each.leader === null ? "is offline" : `is led by ${each.leader}`}`).join(", ")}`);
  }
  return { element, update };
}

/** All topics that the server gave. */
export function matrices(addressOf) {
  const element = h("div.matrices", { id: freshId("matrices") });
  const known = new Map();
  return {
    element,
    update(partitions, brokers) {
      const topics = new Map();
      for (const each of partitions) topics.set(each.topic, [...(topics.get(each.topic) ?? []), each]);
      for (const name of [...known.keys()]) if (!topics.has(name)) known.delete(name);
      for (const [name, each] of topics) {
        if (!known.has(name)) known.set(name, topicMatrix(name, addressOf(name)));
        known.get(name).update(each.sort((a, b) => a.partition - b.partition), brokers);
      }
      const order = [...topics.keys()].map((name) => known.get(name).element);
      if (order.length !== element.children.length || order.some((each, at) => element.children[at] !== each)) replace(element, order);
    },
  };
}
