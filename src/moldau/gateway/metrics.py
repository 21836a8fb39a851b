"""The metrics of a gateway, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.gateway.http.server import HttpServer
from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.prometheus.text import COUNTER, GAUGE, Family, single

USERS: Final = Family("moldau_gateway_users", GAUGE, "Users of the cluster with open connections of the gateway.")
UNDER_WAY: Final = Family("moldau_gateway_bytes_under_way", GAUGE, "Bytes of records that are not acknowledged yet.")
HTTP_CONNECTIONS: Final = Family("moldau_gateway_http_connections", GAUGE, "Open connections of HTTP.")
HTTP_CONSUMERS: Final = Family("moldau_gateway_http_consumers", GAUGE, "Consumers that clients have made by REST.")
HTTP_REQUESTS: Final = Family("moldau_gateway_http_requests_total", COUNTER, "Requests that append records.")
HTTP_REFUSED: Final = Family("moldau_gateway_http_refused_total", COUNTER, "Requests that were answered with an error.")
HTTP_RECORDS: Final = Family("moldau_gateway_http_records_total", COUNTER, "Records in requests.")
HTTP_BYTES: Final = Family("moldau_gateway_http_bytes_total", COUNTER, "Bytes of records in requests.")


class Measured(NamedTuple):
    accounts: KafkaAccounts
    http: HttpServer


def steps(measured: Measured) -> Iterator[str]:
    accounts, http = measured
    yield single(USERS, accounts.count)
    yield single(UNDER_WAY, accounts.bytes_under_way)
    yield single(HTTP_CONNECTIONS, http.connections)
    yield single(HTTP_CONSUMERS, http.consumers.count)
    yield single(HTTP_REQUESTS, http.counters.requests)
    yield single(HTTP_REFUSED, http.counters.refused)
    yield single(HTTP_RECORDS, http.counters.records)
    yield single(HTTP_BYTES, http.counters.bytes)
