"""The metrics of a gateway, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.gateway.http.server import HttpServer
from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.gateway.mqtt.server import MqttServer
from moldau.prometheus.text import COUNTER, GAUGE, Family, labels, pieces, single

USERS: Final = Family("moldau_gateway_users", GAUGE, "Users of the cluster with open connections of the gateway.")
UNDER_WAY: Final = Family("moldau_gateway_bytes_under_way", GAUGE, "Bytes of records that are not acknowledged yet.")
HTTP_CONNECTIONS: Final = Family("moldau_gateway_http_connections", GAUGE, "Open connections of HTTP.")
HTTP_STREAMS: Final = Family("moldau_gateway_http_streams", GAUGE, "Open event streams and web sockets.")
HTTP_CONSUMERS: Final = Family("moldau_gateway_http_consumers", GAUGE, "Consumers that clients have made by REST.")
HTTP_REQUESTS: Final = Family("moldau_gateway_http_requests_total", COUNTER, "Requests that append records.")
HTTP_REFUSED: Final = Family("moldau_gateway_http_refused_total", COUNTER, "Requests that were answered with an error.")
HTTP_RECORDS: Final = Family("moldau_gateway_http_records_total", COUNTER, "Records in requests.")
HTTP_BYTES: Final = Family("moldau_gateway_http_bytes_total", COUNTER, "Bytes of records in requests.")


MQTT_CONNECTIONS: Final = Family("moldau_gateway_mqtt_connections", GAUGE, "Open connections of MQTT.")
MQTT_SESSIONS: Final = Family("moldau_gateway_mqtt_sessions", GAUGE, "Sessions, of clients that are away too.")
MQTT_RETAINED: Final = Family("moldau_gateway_mqtt_retained_bytes", GAUGE, "Bytes of retained messages.")
MQTT_HELD: Final = Family("moldau_gateway_mqtt_held_bytes", GAUGE, "Bytes of packets that are not complete yet.")
MQTT_TAILS: Final = Family("moldau_gateway_mqtt_tails", GAUGE, "Readers of topics that subscribers share.")
MQTT_IN: Final = Family("moldau_gateway_mqtt_messages_in_total", COUNTER, "Messages of clients, refused ones too.")
MQTT_OUT: Final = Family("moldau_gateway_mqtt_messages_out_total", COUNTER, "Messages to subscribers.")
MQTT_BYTES_IN: Final = Family("moldau_gateway_mqtt_bytes_in_total", COUNTER, "Bytes from clients.")
MQTT_BYTES_OUT: Final = Family("moldau_gateway_mqtt_bytes_out_total", COUNTER, "Bytes to clients.")
MQTT_REFUSED: Final = Family("moldau_gateway_mqtt_refused_total", COUNTER, "What was refused, and why.")


class Measured(NamedTuple):
    accounts: KafkaAccounts
    http: HttpServer | None
    mqtt: MqttServer | None


def steps(measured: Measured) -> Iterator[str]:
    accounts, http, mqtt = measured
    yield single(USERS, accounts.count)
    yield single(UNDER_WAY, accounts.bytes_under_way)
    if http is not None:
        yield from _of_http(http)
    if mqtt is not None:
        yield from _of_mqtt(mqtt)


def _of_http(http: HttpServer) -> Iterator[str]:
    yield single(HTTP_CONNECTIONS, http.connections)
    yield single(HTTP_STREAMS, http.outflow.open)
    yield single(HTTP_CONSUMERS, http.consumers.count)
    yield single(HTTP_REQUESTS, http.counters.requests)
    yield single(HTTP_REFUSED, http.counters.refused)
    yield single(HTTP_RECORDS, http.counters.records)
    yield single(HTTP_BYTES, http.counters.bytes)


def _of_mqtt(mqtt: MqttServer) -> Iterator[str]:
    counters = mqtt.counters
    yield single(MQTT_CONNECTIONS, counters.connections)
    yield single(MQTT_SESSIONS, mqtt.sessions)
    yield single(MQTT_RETAINED, mqtt.retained_bytes)
    yield single(MQTT_HELD, counters.held_bytes)
    yield single(MQTT_TAILS, mqtt.tails)
    yield single(MQTT_IN, counters.messages_in)
    yield single(MQTT_OUT, counters.messages_out)
    yield single(MQTT_BYTES_IN, counters.bytes_in)
    yield single(MQTT_BYTES_OUT, counters.bytes_out)
    yield from pieces(MQTT_REFUSED, [(labels(what=what), count) for what, count in counters.refused.items()])
