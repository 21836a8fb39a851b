"""Which metrics a client is asked for, and whether a push of its metrics is accepted (KIP-714).

An administrator makes client metrics resources, each with prefixes of metrics, an interval and patterns that clients
must match. A client asks for its subscription, the union of those that match it, and then pushes its metrics at each
interval. Times are arguments, from the monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moldau.base.client_metrics_configs import (
    DEFAULT_INTERVAL_MS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    client_metrics_values,
    match_patterns,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import METADATA_TOPIC_UUID, ZERO_UUID, Uuid
from moldau.wire.crc import crc32c

ALL_METRICS: Final = "*"
INSTANCES_MAX: Final = 16_384
"""Clients that are remembered, as many as in Kafka; the one that was silent for longest is forgotten first."""
RESERVED_IDS: Final = frozenset({ZERO_UUID, METADATA_TOPIC_UUID})
_NEVER_MS: Final = -(1 << 62)


class ClientIdentity(NamedTuple):
    """What the patterns of a subscription are compared with; the names are those of the selectors."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A client metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any]
    is_valid: bool = True
    """Otherwise it matches nobody."""

    def matches(self, client: ClientIdentity) -> bool:
        return self.is_valid and all(
            pattern.fullmatch(getattr(client, selector)) for selector, pattern in self.patterns.items()
        )


def parse_subscription(configs: Mapping[str, str]) -> Subscription:
    values = client_metrics_values(configs)
    metrics, interval_ms = values[METRICS], values[INTERVAL_MS]
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    return Subscription(metrics, interval_ms, match_patterns(values[MATCH]))


@dataclass(slots=True)
class Instance:
    """A client that asked for its subscription or pushed metrics."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int
    version: int
    """The version of the subscriptions from which the other fields were computed."""
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    asked_at_ms: int = field(default=_NEVER_MS)
    pushed_at_ms: int = field(default=_NEVER_MS)

    def may_ask(self, now_ms: int) -> bool:
        """Whether the interval is over, or the client must ask again after an error."""
        must_ask = self.last_error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return must_ask or now_ms - max(self.asked_at_ms, self.pushed_at_ms) >= self.interval_ms

    def try_push(self, now_ms: int) -> bool:
        """Note a push and return True if the interval is over, or if it is the first after the client asked."""
        if self.asked_at_ms <= self.pushed_at_ms and now_ms - self.pushed_at_ms < self.interval_ms:
            return False
        self.pushed_at_ms = now_ms
        return True


class Subscriptions:
    """All client metrics resources, and the clients that are known."""

    def __init__(self) -> None:
        self._by_name: dict[str, Subscription] = {}
        self._version = 0
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()

    @property
    def exist(self) -> bool:
        return bool(self._by_name)

    def set(self, name: str, configs: Mapping[str, str]) -> str | None:
        """Set the configs of a resource; without any, it is removed. If they cannot be used on this node, it matches
        nobody, and the reason is returned: the controller has accepted them, and the metadata must go on."""
        self._version += 1
        if not configs:
            self._by_name.pop(name, None)
            return None
        try:
            self._by_name[name] = parse_subscription(configs)
        except KafkaError as error:
            self._by_name[name] = Subscription((), DEFAULT_INTERVAL_MS, {}, is_valid=False)
            return error.message or error.code.name
        return None

    def ask(self, instance_id: Uuid, identity: ClientIdentity, now_ms: int) -> Instance | ErrorCode:
        """Return the client's subscription, or an error if it asks again too soon."""
        instance = self._instance(instance_id, identity)
        if not instance.may_ask(now_ms):
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.asked_at_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self, instance_id: Uuid, identity: ClientIdentity, subscription_id: int, is_terminating: bool, now_ms: int
    ) -> Instance | ErrorCode:
        """Return the client if it may push its metrics now, an error otherwise."""
        if instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(instance_id, identity)
        error = _push_error(instance, subscription_id, is_terminating, now_ms)
        instance.is_terminating = is_terminating
        instance.last_error = error
        return instance if error is ErrorCode.NONE else error

    def _instance(self, instance_id: Uuid, identity: ClientIdentity) -> Instance:
        """Return the client with its present subscription. After a change it may ask and push at once."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.version < self._version:
            instance = self._instances[instance_id] = self._new_instance(instance_id, identity)
            if len(self._instances) > INSTANCES_MAX:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        return instance

    def _new_instance(self, instance_id: Uuid, identity: ClientIdentity) -> Instance:
        matching = [each for each in self._by_name.values() if each.matches(identity)]
        metrics = tuple(sorted({name for each in matching for name in each.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        # As in Kafka, the interval is never longer than the default.
        interval_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        return Instance(_subscription_id(instance_id, metrics, interval_ms), metrics, interval_ms, self._version)


def _push_error(instance: Instance, subscription_id: int, is_terminating: bool, now_ms: int) -> ErrorCode:
    if instance.is_terminating:  # the client said that its last push was the last one
        return ErrorCode.INVALID_REQUEST
    if not instance.try_push(now_ms) and not is_terminating:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # Kafka accepts a push of a client that was asked for nothing. Its own clients then send none.
    if not instance.metrics or subscription_id != instance.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    return ErrorCode.NONE


def _subscription_id(instance_id: Uuid, metrics: tuple[str, ...], interval_ms: int) -> int:
    """Return a number that changes with the metrics and the interval: with another one a client must ask again."""
    checksum = crc32c(f"{','.join(metrics)} {interval_ms}".encode()) ^ crc32c(instance_id)
    return checksum - (1 << 32) if checksum >> 31 else checksum
