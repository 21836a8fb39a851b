"""GetTelemetrySubscriptions and PushTelemetry: the responses, the limits, and the metrics that are kept."""

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
from moldau.metadata.records import ConfigResource
from moldau.server.handler import Caller
from moldau.server.handlers import telemetry as module
from moldau.server.handlers.telemetry import READS_MAX, GetTelemetrySubscriptions, PushTelemetry, Telemetry
from moldau.testing.clock import FakeClock
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.log_records.metadata import ConfigRecord
from moldau.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from moldau.wire.messages.push_telemetry import PushTelemetryRequest

CALLER = Caller("PLAINTEXT", "[2001:db8::1]:4711", "shop", 0)
BYTES_MAX = 1_000


class TelemetryHandlers:
    """The handlers of both APIs, with one subscription for all clients."""

    def __init__(self) -> None:
        self.telemetry = Telemetry(BrokerLayers(static={"telemetry.max.bytes": str(BYTES_MAX)}))
        self.telemetry.subscriptions.set("all", {"metrics": "*", "interval.ms": "1000"})
        self.telemetry.software.note(CALLER.address, "librdkafka", "2.16.0")
        self.clock = FakeClock()
        self._get_subscriptions = GetTelemetrySubscriptions(self.telemetry, self.clock, Random(1))
        self.subscriptions = self.get_subscriptions(CALLER)
        self.threads: list[Callable[[], None]] = []
        """Work that `push_later` has submitted to a thread; the test runs it."""
        self._push = PushTelemetry(self.telemetry, self.clock, at_once)
        self._late_push = PushTelemetry(self.telemetry, self.clock, self._later)

    def _later(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        done = Promise[StorageFault | None]()

        def run() -> None:
            work()
            done.complete(None)

        self.threads.append(run)
        return done

    def get_subscriptions(self, caller: Caller) -> GetTelemetrySubscriptionsResponse:
        return self._get_subscriptions.answer(GetTelemetrySubscriptionsRequest(), caller)

    def push(self, payload: bytes, compression: int = 0) -> int:
        return int(self.answer(self.subscriptions, CALLER, payload, compression).error_code)

    def push_as_new(self, caller: Caller) -> int:
        """Push with a client instance id of its own."""
        return int(self.answer(self.get_subscriptions(caller), caller, gauge()).error_code)

    def push_later(self, caller: Caller) -> Any:
        """Push with a client instance id of its own; the metrics wait in `threads` to be read."""
        return self.answer(self.get_subscriptions(caller), caller, gauge(), handler=self._late_push)

    def answer(
        self,
        subscriptions: GetTelemetrySubscriptionsResponse,
        caller: Caller,
        payload: bytes,
        compression: int = 0,
        handler: PushTelemetry | None = None,
    ) -> Any:
        request = PushTelemetryRequest(
            subscriptions.client_instance_id, subscriptions.subscription_id, False, compression, payload
        )
        answer: Any = (handler or self._push).answer(request, caller)
        return answer.value() if isinstance(answer, Promise) and answer.done else answer

    @property
    def kept(self) -> list[tuple[str, int]]:
        """The source address of each client whose metrics are kept, and the number of its points."""
        return [(each.identity.client_source_address, len(each.points)) for each in self.telemetry.received.live(0)]


def gauge() -> bytes:
    point = b"\x31" + bytes(8)
    data = b"\x0a" + bytes([len(point)]) + point
    metric = b"\x0a\x01a\x2a" + bytes([len(data)]) + data
    scope = b"\x12" + bytes([len(metric)]) + metric
    resource = b"\x12" + bytes([len(scope)]) + scope
    return b"\x0a" + bytes([len(resource)]) + resource


def test_get_telemetry_subscriptions_returns_metrics_and_a_client_instance_id() -> None:
    response = TelemetryHandlers().subscriptions
    assert response.client_instance_id != bytes(16)
    assert (response.error_code, response.push_interval_ms, response.telemetry_max_bytes) == (0, 1_000, BYTES_MAX)
    assert (response.requested_metrics, response.delta_temporality) == (("*",), False)


def test_metrics_are_kept_with_the_client_that_sent_them() -> None:
    handlers = TelemetryHandlers()
    assert handlers.push(gauge()) == 0
    assert handlers.kept == [("2001:db8::1", 1)]


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
def test_an_unreadable_push_is_refused_and_counted(payload: bytes, compression: int, code: ErrorCode) -> None:
    handlers = TelemetryHandlers()
    assert handlers.push(payload, compression) == code
    assert handlers.kept == []
    assert handlers.telemetry.received.refused == (code is ErrorCode.INVALID_RECORD)


def test_compressed_metrics_are_read() -> None:
    handlers = TelemetryHandlers()
    assert handlers.push(gzip.compress(gauge()), 1) == 0
    assert handlers.kept == [("2001:db8::1", 1)]


def test_telemetry_apis_are_listed_only_while_there_are_subscriptions() -> None:
    handlers = TelemetryHandlers()
    served = {int(ApiKey.FETCH): (4, 17), int(ApiKey.PUSH_TELEMETRY): (0, 0)}
    listed = handlers.telemetry.listed(lambda: served)
    assert listed() == served
    handlers.telemetry.subscriptions.set("all", {})
    assert list(listed()) == [ApiKey.FETCH]


def test_a_push_is_refused_while_no_subscription_matches_the_client() -> None:
    handlers = TelemetryHandlers()
    handlers.telemetry.subscriptions.set("all", {})
    nothing = handlers.get_subscriptions(CALLER)
    assert nothing.requested_metrics == ()
    assert handlers.answer(nothing, CALLER, gauge()).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert handlers.kept == []


def test_a_connection_cannot_push_more_often_with_ever_new_instance_ids() -> None:
    handlers = TelemetryHandlers()
    codes = [handlers.push_as_new(CALLER) for _ in range(10)]
    assert codes == [0] * 3 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 7
    other = Caller("PLAINTEXT", "[2001:db8::1]:4712", "shop", 0)
    assert handlers.push_as_new(other) == 0
    handlers.clock.move(1_000)
    assert [handlers.push_as_new(CALLER) for _ in range(2)] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    handlers.telemetry.connection_gone(CALLER.address)
    assert handlers.push_as_new(CALLER) == 0  # a new connection from the same address and port


def test_the_number_of_pushes_read_at_once_is_limited() -> None:
    handlers = TelemetryHandlers()
    callers = [Caller("PLAINTEXT", f"10.0.0.1:{port}", "shop", 0) for port in range(READS_MAX + 1)]
    reading = [handlers.push_later(caller) for caller in callers[:-1]]
    assert handlers.push_later(callers[-1]).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    handlers.threads.pop()()
    assert reading[-1].value().error_code == 0
    assert isinstance(handlers.push_later(callers[-1]), Promise)


def test_an_exception_while_reading_metrics_is_answered_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "read_points", fail)
    handlers = TelemetryHandlers()
    assert handlers.push(gauge()) == ErrorCode.INVALID_RECORD
    assert handlers.telemetry.received.refused == 1
    assert "ZeroDivisionError" in caplog.text


def test_long_client_ids_are_truncated() -> None:
    handlers = TelemetryHandlers()
    tracemalloc.start()
    try:
        for number in range(100):
            handlers.push_as_new(Caller("PLAINTEXT", f"10.0.0.1:{number}", f"{number:030000}", 0))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 30_000 * 100 / 10
    assert {len(each.identity.client_id) for each in handlers.telemetry.received.live(0)} == {128}


def test_a_subscription_pattern_that_cannot_be_compiled_matches_no_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller accepted it because it has RE2 installed; this broker does not."""
    monkeypatch.setitem(sys.modules, "re2", None)
    configs = {"metrics": "*", "interval.ms": "100", "match": "client_id=shop.*"}
    records = [ConfigRecord(ConfigResource.CLIENT_METRICS, "of-shops", *each) for each in configs.items()]
    handlers, current = TelemetryHandlers(), CurrentImage()
    handlers.telemetry.subscriptions.set("all", {})
    current.add_listener(handlers.telemetry.on_image)
    current.publish(*apply(current.image, records, 0, 0))
    assert current.image.configs_of(ConfigResource.CLIENT_METRICS, "of-shops") == configs
    assert handlers.get_subscriptions(CALLER).requested_metrics == ()
    assert "of-shops" in caplog.text
    assert "google-re2 is not installed" in caplog.text
