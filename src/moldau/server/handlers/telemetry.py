"""GetTelemetrySubscriptions v0 and PushTelemetry v0: metrics that clients measure (KIP-714).

Apache Kafka serves both only with a plugin that receives the metrics. Here the node keeps the last values of each
client and serves them with its own metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from moldau.base.broker_configs import broker_integer
from moldau.base.clock import Clock
from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import ZERO_UUID, Uuid, uuid_text
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.settings import node
from moldau.metadata.apply import Changes
from moldau.metadata.controller.topics import new_uuid
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.server.client_software import ClientSoftware
from moldau.server.handler import Caller, Handler
from moldau.telemetry.otlp import Point, read_points
from moldau.telemetry.push_limit import PushLimit
from moldau.telemetry.received import ReceivedByClient, characters_of
from moldau.telemetry.subscriptions import ClientIdentity, Instance, Subscriptions
from moldau.wire.apis import ApiKey
from moldau.wire.compression import Compression, decompress
from moldau.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from moldau.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

COMPRESSION_TYPES: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
DECOMPRESSED_FACTOR: Final = 4
"""Metrics may be so many times `telemetry.max.bytes` when they are decompressed."""
CLIENT_ID_LENGTH_MAX: Final = 128
"""Of a longer client id only the beginning is kept, shown and compared with the patterns of subscriptions."""
READS_MAX: Final = 4
"""Pushes that are read at a time: the threads are those of the disk too. The client of a further one is throttled."""
log = logging.getLogger("moldau.server")
_Read = tuple[Sequence[Point], int]
"""Values, and how many characters their names and labels have."""


class Telemetry:
    """The subscriptions, and what clients have pushed."""

    def __init__(self, broker_configs: BrokerLayers) -> None:
        self.bytes_max = broker_integer(node.TELEMETRY_MAX_BYTES, broker_configs)
        self.software = ClientSoftware()
        self.subscriptions = Subscriptions()
        self.received = ReceivedByClient()
        self.push_limit = PushLimit()

    def connection_gone(self, address: str) -> None:
        """Called when a client's connection has ended."""
        self.software.forget(address)
        self.push_limit.forget(address)

    def listed(self, served: Callable[[], dict[int, tuple[int, int]]]) -> Callable[[], dict[int, tuple[int, int]]]:
        """Return a function that returns those of the served APIs that ApiVersions lists. Without subscriptions the two
        of telemetry are left out, as by Kafka without a plugin: librdkafka would ask in vain, and log that it did."""

        others: dict[int, tuple[int, int]] = {}

        def in_use() -> dict[int, tuple[int, int]]:
            nonlocal others
            apis = served()
            if self.subscriptions.exist:
                return apis
            others = others or {
                key: versions
                for key, versions in apis.items()
                if key not in (GetTelemetrySubscriptions.api, PushTelemetry.api)
            }
            return others  # the same each time: ApiVersions makes its list once

        return in_use

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        for kind, name in changes.configs:
            if kind == ConfigResource.CLIENT_METRICS:
                reason = self.subscriptions.set(name, image.configs_of(kind, name))
                if reason is not None:
                    log.error("the client metrics resource %r matches no client on this node: %s", name, reason)

    def identity(self, instance_id: Uuid, caller: Caller) -> ClientIdentity:
        host, _, port = caller.address.rpartition(":")
        name, version = self.software.of(caller.address)
        client_id = (caller.client_id or "")[:CLIENT_ID_LENGTH_MAX]
        return ClientIdentity(uuid_text(instance_id), client_id, name, version, host.strip("[]"), port)


class GetTelemetrySubscriptions(Handler):
    api = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    versions = (0, 0)
    needs = ()

    def __init__(self, telemetry: Telemetry, clock: Clock, rng: Random) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._rng = rng

    def answer(self, request: GetTelemetrySubscriptionsRequest, caller: Caller) -> GetTelemetrySubscriptionsResponse:
        id = request.client_instance_id
        if id == ZERO_UUID:
            id = new_uuid(self._rng)
        telemetry = self._telemetry
        outcome = telemetry.subscriptions.ask(id, telemetry.identity(id, caller), self._clock.monotonic_ms())
        if not isinstance(outcome, Instance):
            return GetTelemetrySubscriptionsResponse(error_code=outcome)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=id,
            subscription_id=outcome.subscription_id,
            accepted_compression_types=COMPRESSION_TYPES,
            push_interval_ms=outcome.interval_ms,
            telemetry_max_bytes=telemetry.bytes_max,
            delta_temporality=False,  # Prometheus expects counters since the start of the client
            requested_metrics=outcome.metrics,
        )


class PushTelemetry(Handler):
    api = ApiKey.PUSH_TELEMETRY
    versions = (0, 0)
    needs = ()

    def __init__(self, telemetry: Telemetry, clock: Clock, run_in_thread: RunInThread) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._reading = 0

    def answer(
        self, request: PushTelemetryRequest, caller: Caller
    ) -> PushTelemetryResponse | Promise[PushTelemetryResponse]:
        telemetry, id, now_ms = self._telemetry, request.client_instance_id, self._clock.monotonic_ms()
        identity = telemetry.identity(id, caller)
        instance = telemetry.subscriptions.push(id, identity, request.subscription_id, request.terminating, now_ms)
        if not isinstance(instance, Instance):
            return PushTelemetryResponse(error_code=instance)
        error = self._payload_error(request)
        if error is ErrorCode.NONE and not self._may_read(caller.address, instance.interval_ms, now_ms):
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if error is not ErrorCode.NONE:
            instance.last_error = error
            return PushTelemetryResponse(error_code=error)

        def note(read: _Read | None) -> PushTelemetryResponse:
            self._reading -= 1
            if read is None:
                instance.last_error = ErrorCode.INVALID_RECORD
                telemetry.received.refused += 1
                return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
            telemetry.received.note(id, identity, *read, instance.interval_ms, self._clock.monotonic_ms())
            return PushTelemetryResponse()

        self._reading += 1
        return self._read(request, note)

    def _may_read(self, address: str, interval_ms: int, now_ms: int) -> bool:
        return self._reading < READS_MAX and self._telemetry.push_limit.try_push(address, interval_ms, now_ms)

    def _payload_error(self, request: PushTelemetryRequest) -> ErrorCode:
        if request.compression_type not in (Compression.NONE, *COMPRESSION_TYPES):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        is_too_large = len(request.metrics) > self._telemetry.bytes_max
        return ErrorCode.TELEMETRY_TOO_LARGE if is_too_large else ErrorCode.NONE

    def _read(
        self, request: PushTelemetryRequest, note: Callable[[_Read | None], PushTelemetryResponse]
    ) -> Promise[PushTelemetryResponse]:
        """Decompress and read the metrics in a thread; call `note` with them, or with None if they are invalid."""
        read: _Read | None = None
        # The bytes are copied: the buffer of the connection is used again while the thread reads.
        codec, payload = Compression(request.compression_type), bytes(request.metrics)

        def work() -> None:
            nonlocal read
            try:
                points = read_points(decompress(codec, payload, DECOMPRESSED_FACTOR * self._telemetry.bytes_max))
                read = points, characters_of(points)
            except MalformedData:
                read = None  # the client is told, and the push is counted
            except Exception:  # it must not leave the thread: that would stop the node
                INTERNAL_ERRORS.log(log, "the metrics of a client cannot be read")

        return self._run_in_thread(work).map(lambda _: note(read))
