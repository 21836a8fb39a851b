"""PushTelemetry and GetTelemetrySubscriptions: what a client is told, and what is kept of its metrics."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.promise import Promise
from moldau.metadata.apply import apply
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import ConfigRecord, ConfigResource
from moldau.server.handlers import telemetry as module
from moldau.server.handlers.telemetry import READS_MAX, GetTelemetrySubscriptions, PushTelemetry, Telemetry
from moldau.server.router import Caller
from moldau.testing.clock import FakeClock
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from moldau.wire.messages.push_telemetry import PushTelemetryRequest

CALLER = Caller("PLAINTEXT", "[2001:db8::1]:4711", "shop", 0)
BYTES_MAX = 1_000


class Desk:
    def __init__(self) -> None:
        self.telemetry = Telemetry(BrokerLayers(static={"telemetry.max.bytes": str(BYTES_MAX)}))
        self.telemetry.subscriptions.set("all", {"metrics": "*", "interval.ms": "1000"})
        self.telemetry.software.note(CALLER.address, "librdkafka", "2.16.0")
        self.clock = FakeClock()
        self._ask = GetTelemetrySubscriptions(self.telemetry, self.clock, Random(1))
        self.asked = self.ask(CALLER)
        self.threads: list[Callable[[], None]] = []
        """What waits for a thread."""
        self._push = PushTelemetry(self.telemetry, self.clock, at_once)
        self._late_push = PushTelemetry(self.telemetry, self.clock, self._later)

    def _later(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        done = Promise[StorageFault | None]()

        def run() -> None:
            work()
            done.complete(None)

        self.threads.append(run)
        return done

    def ask(self, caller: Caller) -> GetTelemetrySubscriptionsResponse:
        return self._ask.answer(GetTelemetrySubscriptionsRequest(), caller)

    def push(self, payload: bytes, compression: int = 0) -> int:
        return int(self.answer(self.asked, CALLER, payload, compression).error_code)

    def push_as_new(self, caller: Caller) -> int:
        """Push with a client instance id of its own."""
        return int(self.answer(self.ask(caller), caller, gauge()).error_code)

    def push_later(self, caller: Caller) -> Any:
        return self.answer(self.ask(caller), caller, gauge(), handler=self._late_push)

    def answer(
        self,
        asked: GetTelemetrySubscriptionsResponse,
        caller: Caller,
        payload: bytes,
        compression: int = 0,
        handler: PushTelemetry | None = None,
    ) -> Any:
        request = PushTelemetryRequest(asked.client_instance_id, asked.subscription_id, False, compression, payload)
        answer: Any = (handler or self._push).answer(request, caller)
        return answer.value() if isinstance(answer, Promise) and answer.done else answer

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


def test_a_push_is_refused_while_no_subscription_matches_the_client() -> None:
    desk = Desk()
    desk.telemetry.subscriptions.set("all", {})
    nothing = desk.ask(CALLER)
    assert nothing.requested_metrics == ()
    assert desk.answer(nothing, CALLER, gauge()).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert desk.kept == []


def test_a_connection_cannot_push_more_often_with_ever_new_instance_ids() -> None:
    desk = Desk()
    codes = [desk.push_as_new(CALLER) for _ in range(10)]
    assert codes == [0] * 3 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 7
    other = Caller("PLAINTEXT", "[2001:db8::1]:4712", "shop", 0)
    assert desk.push_as_new(other) == 0
    desk.clock.move(1_000)
    assert [desk.push_as_new(CALLER) for _ in range(2)] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    desk.telemetry.connection_gone(CALLER.address)
    assert desk.push_as_new(CALLER) == 0  # somebody else has the port now


def test_only_some_pushes_are_read_at_a_time() -> None:
    desk = Desk()
    callers = [Caller("PLAINTEXT", f"10.0.0.1:{port}", "shop", 0) for port in range(READS_MAX + 1)]
    reading = [desk.push_later(caller) for caller in callers[:-1]]
    assert desk.push_later(callers[-1]).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    desk.threads.pop()()
    assert reading[-1].value().error_code == 0
    assert isinstance(desk.push_later(callers[-1]), Promise)


def test_a_fault_of_the_reader_is_answered_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "read_points", fail)
    desk = Desk()
    assert desk.push(gauge()) == ErrorCode.INVALID_RECORD
    assert desk.telemetry.received.refused == 1
    assert "ZeroDivisionError" in caplog.text


def test_long_client_ids_are_not_kept() -> None:
    desk = Desk()
    tracemalloc.start()
    try:
        for number in range(100):
            desk.push_as_new(Caller("PLAINTEXT", f"10.0.0.1:{number}", f"{number:030000}", 0))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 30_000 * 100 / 10
    assert {len(each.identity.client_id) for each in desk.telemetry.received.live(0)} == {128}


def test_a_pattern_that_cannot_be_compiled_here_matches_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller accepted it: it has another RE2, or one at all."""
    monkeypatch.setitem(sys.modules, "re2", None)
    configs = {"metrics": "*", "interval.ms": "100", "match": "client_id=shop.*"}
    records = [ConfigRecord(ConfigResource.CLIENT_METRICS, "of-shops", *each) for each in configs.items()]
    desk, current = Desk(), CurrentImage()
    desk.telemetry.subscriptions.set("all", {})
    current.add_listener(desk.telemetry.on_image)
    current.publish(*apply(current.image, records, 0, 0))
    assert current.image.configs_of(ConfigResource.CLIENT_METRICS, "of-shops") == configs
    assert desk.ask(CALLER).requested_metrics == ()
    assert "of-shops" in caplog.text
    assert "google-re2 is not installed" in caplog.text
