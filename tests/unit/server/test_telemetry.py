"""PushTelemetry and GetTelemetrySubscriptions: what a client is told, and what is kept of its metrics."""

from __future__ import annotations

import gzip
from random import Random
from typing import Any

import pytest

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode
from moldau.server.handlers.telemetry import GetTelemetrySubscriptions, PushTelemetry, Telemetry
from moldau.server.router import Caller
from moldau.testing.clock import FakeClock
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.wire.messages.push_telemetry import PushTelemetryRequest

CALLER = Caller("PLAINTEXT", "[2001:db8::1]:4711", "shop", 0)
BYTES_MAX = 1_000


class Desk:
    def __init__(self) -> None:
        self.telemetry = Telemetry(BrokerLayers(static={"telemetry.max.bytes": str(BYTES_MAX)}))
        self.telemetry.subscriptions.set("all", {"metrics": "*", "interval.ms": "1000"})
        self.telemetry.software.note(CALLER.address, "librdkafka", "2.16.0")
        clock = FakeClock()
        asked = GetTelemetrySubscriptions(self.telemetry, clock, Random(1)).answer(
            GetTelemetrySubscriptionsRequest(), CALLER
        )
        self.asked = asked
        self._push = PushTelemetry(self.telemetry, clock, at_once)

    def push(self, payload: bytes, compression: int = 0) -> int:
        request = PushTelemetryRequest(
            self.asked.client_instance_id, self.asked.subscription_id, False, compression, payload
        )
        answer: Any = self._push.answer(request, CALLER)
        answer = answer.value() if hasattr(answer, "value") else answer
        return int(answer.error_code)

    @property
    def kept(self) -> list[tuple[str, int]]:
        return [(each.identity.client_source_address, len(each.points)) for each in self.telemetry.received.live(0)]


def gauge() -> bytes:
    point = b"\x31" + bytes(8)
    data = b"\x0a" + bytes([len(point)]) + point
    metric = b"\x0a\x01a\x2a" + bytes([len(data)]) + data
    scope = b"\x12" + bytes([len(metric)]) + metric
    resource = b"\x12" + bytes([len(scope)]) + scope
    return b"\x0a" + bytes([len(resource)]) + resource


def test_a_client_is_told_what_to_push_and_gets_an_id() -> None:
    asked = Desk().asked
    assert asked.client_instance_id != bytes(16)
    assert (asked.error_code, asked.push_interval_ms, asked.telemetry_max_bytes) == (0, 1_000, BYTES_MAX)
    assert (asked.requested_metrics, asked.delta_temporality) == (("*",), False)


def test_metrics_are_kept_with_the_client_that_sent_them() -> None:
    desk = Desk()
    assert desk.push(gauge()) == 0
    assert desk.kept == [("2001:db8::1", 1)]


@pytest.mark.parametrize(
    ("payload", "compression", "code"),
    [
        (b"x" * (BYTES_MAX + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (gauge(), 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"\xff\xff", 0, ErrorCode.INVALID_RECORD),
        (b"no gzip", 1, ErrorCode.INVALID_RECORD),
        (gzip.compress(bytes(100 * BYTES_MAX)), 1, ErrorCode.INVALID_RECORD),
    ],
    ids=["too large", "codec", "garbage", "not compressed", "decompression bomb"],
)
def test_what_cannot_be_read_is_refused_and_counted(payload: bytes, compression: int, code: ErrorCode) -> None:
    desk = Desk()
    assert desk.push(payload, compression) == code
    assert desk.kept == []
    assert desk.telemetry.received.refused == (code is ErrorCode.INVALID_RECORD)


def test_compressed_metrics_are_read() -> None:
    desk = Desk()
    assert desk.push(gzip.compress(gauge()), 1) == 0
    assert desk.kept == [("2001:db8::1", 1)]


def test_the_apis_are_listed_while_there_are_subscriptions() -> None:
    desk = Desk()
    served = {int(ApiKey.FETCH): (4, 17), int(ApiKey.PUSH_TELEMETRY): (0, 0)}
    listed = desk.telemetry.listed(lambda: served)
    assert listed() == served
    desk.telemetry.subscriptions.set("all", {})
    assert list(listed()) == [ApiKey.FETCH]
