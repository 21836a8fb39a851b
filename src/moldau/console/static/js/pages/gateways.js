// Devices: what the gateways measure that let devices, browsers and scripts send and follow records.

import { get } from "../api.js";
import { card, empty, figures, head, words } from "../components.js";
import { append, h, replace } from "../dom.js";
import * as format from "../format.js";
import { plainTable } from "../table.js";

export async function gatewaysPage({ root, signal, crumbs, every }) {
  crumbs([["Devices"]]);
  const content = h("div.stack");
  append(root, [head("Devices", { about: "The gateways for devices, browsers and scripts, over HTTP and MQTT." }), content]);
  const refresh = async () => replace(content, drawn(await get("/api/gateways", { signal })));
  await refresh();
  every(5, refresh);
}

function drawn(data) {
  const notes = data.notes.map((note) => h("p.muted", words(note)));
  if (!data.gateways.length) return [empty("No gateway is known", data.empty.map((sentence) => h("p.prose", words(sentence)))), notes];
  return [data.gateways.map(gatewayCard), notes];
}

function gatewayCard(gateway) {
  const { now, per_second: rate, since_start: total } = gateway;
  return card(gateway.address,
    figures([
      ["Users", format.count(now.users), "with open connections"],
      ["Under way", format.bytes(now.bytes_under_way), "not acknowledged yet"],
    ]),
    gateway.http && [h("h3", "HTTP"), figures([
      ["Connections", format.count(now.http_connections)],
      ["Consumers", format.count(now.http_consumers), "made by REST"],
      ["Streams", format.count(now.http_streams), "of events, and web sockets"],
      ["Requests", perSecond(rate.http_requests_total), `${format.count(total.http_requests_total)} since the start`],
      ["Records in", perSecond(rate.http_records_total), byteRate(rate.http_bytes_total)],
      ["Refused", perSecond(rate.http_refused_total), `${format.count(total.http_refused_total)} since the start`],
    ])],
    gateway.mqtt && [h("h3", "MQTT"), figures([
      ["Connections", format.count(now.mqtt_connections)],
      ["Sessions", format.count(now.mqtt_sessions), "of clients that are away too"],
      ["Messages in", perSecond(rate.mqtt_messages_in_total), byteRate(rate.mqtt_bytes_in_total)],
      ["Messages out", perSecond(rate.mqtt_messages_out_total), byteRate(rate.mqtt_bytes_out_total)],
      ["Retained", format.bytes(now.mqtt_retained_bytes)],
    ]), refusedTable(gateway.refused)],
  );
}

function refusedTable(rows) {
  if (!rows.length) return null;
  return plainTable({
    caption: "Refused over MQTT since the start", rows, keyOf: (row) => row.what,
    columns: [
      { label: "What was refused", render: (row) => row.what },
      { label: "Times", num: true, render: (row) => format.count(row.count) },
    ],
  });
}

const perSecond = (rate) => (rate === undefined ? format.NOTHING : `${format.count(Math.round(rate))}/s`);
const byteRate = (rate) => (rate === undefined ? null : format.byteRate(rate));
