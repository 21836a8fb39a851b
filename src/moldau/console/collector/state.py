"""What the collector knows of a cluster, as compact values: 39,000 partitions take a few megabytes. Pure.

Those who answer requests see it meanwhile: arrays, tuples and maps are replaced, never changed in place.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moldau.base.clock import WallMs
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_values import BrokerNode, PartitionReplicas, Quorum, Reassignment
from moldau.client.admin.group_values import SHARE, Member, ShareOffset
from moldau.console.collector.ages import Age

UNKNOWN: Final = -1
RATE_WINDOW_SECONDS: Final = 5.0
LASTING_FAILURES: Final = 3
Partitions = tuple["array[int]", "array[int]"]
"""Partition indexes and, at the same places, offsets."""


@dataclass(slots=True)
class TopicState:
    name: str
    is_internal: bool
    topic_id: bytes
    leaders: array[int]
    """By partition; -1 while there is none."""
    replicas: list[tuple[int, ...]]
    isr: list[tuple[int, ...]]
    starts: array[int] | None = None
    ends: array[int] | None = None
    """By partition; -1 if unknown."""
    sizes: array[int] | None = None
    """Bytes of all replicas, by partition; -1 if unknown."""
    earlier: tuple[tuple[float, array[int]], ...] = ()
    """Ends that were read before, with the times: the rate is the difference to the oldest."""
    ends_at: float = 0.0
    rate: float | None = None
    """Records a second."""
    records: int | None = None
    """Log end minus log start of all partitions; None if one of them is unknown."""
    size_bytes: int | None = None

    def partition(self, index: int) -> PartitionReplicas:
        return PartitionReplicas(self.leaders[index], self.replicas[index], self.isr[index])

    def note_starts(self, starts: array[int]) -> None:
        self.starts = starts
        self.records = self._records()

    def note_sizes(self, sizes: array[int]) -> None:
        self.sizes = sizes
        self.size_bytes = None if UNKNOWN in sizes else sum(sizes)

    def _records(self) -> int | None:
        if self.ends is None or self.starts is None or UNKNOWN in self.ends or UNKNOWN in self.starts:
            return None
        return sum(self.ends) - sum(self.starts)

    def _rate(self) -> float | None:
        if not self.earlier or self.ends is None:
            return None
        then, ends = self.earlier[0]
        if len(ends) != len(self.ends) or self.ends_at <= then:
            return None
        grown = sum(max(0, now - before) for now, before in zip(self.ends, ends, strict=True) if before >= 0 <= now)
        return grown / (self.ends_at - then)

    def partition_rate(self, index: int) -> float | None:
        if not self.earlier or self.ends is None:
            return None
        then, ends = self.earlier[0]
        if index >= len(ends) or self.ends_at <= then or ends[index] < 0 or self.ends[index] < 0:
            return None
        return max(0, self.ends[index] - ends[index]) / (self.ends_at - then)

    def note_ends(self, ends: array[int], now: float) -> None:
        """Replace the ends, and keep those of five to ten seconds ago for the rate."""
        if self.ends is not None:
            kept = self.earlier or ((self.ends_at, self.ends),)
            if self.ends_at - kept[-1][0] >= RATE_WINDOW_SECONDS:
                kept = (*kept, (self.ends_at, self.ends))[-2:]
            self.earlier = kept
        self.ends, self.ends_at = ends, now
        self.rate, self.records = self._rate(), self._records()


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A change of a group's members that the collector saw."""

    time_ms: WallMs
    from_members: int
    to_members: int
    joined: tuple[str, ...]
    left: tuple[str, ...]
    cause: str
    state: str


@dataclass(slots=True)
class GroupState:
    group_id: str
    type: str
    protocol_type: str
    state: str
    offsets: Mapping[str, Partitions] = field(default_factory=dict)
    """Committed offsets by topic; of a share group its start offsets."""
    share_offsets: Mapping[TopicPartition, ShareOffset] = field(default_factory=dict)
    """Of a share group."""
    offsets_known: bool = False
    holds_micro_batch_ids: bool = False
    members: tuple[Member, ...] | None = None
    assignor: str = ""
    coordinator: str = ""
    epoch: int | None = None
    lag: int | None = None
    age: Age | None = None
    """The greatest age of a first unread record."""
    rebalances: deque[Rebalance] = field(default_factory=lambda: deque(maxlen=50))

    @property
    def is_share_group(self) -> bool:
        return self.type == SHARE


@dataclass(frozen=True, slots=True)
class LogDir:
    path: str
    size_bytes: int
    total_bytes: int | None
    free_bytes: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Reader:
    """A group that reads a topic."""

    group_id: str
    lag: int | None
    age: Age | None


class StepFailures:
    """Why the collector's steps failed the last times. One failure is no news: a broker may just have died."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, str]] = {}

    def note(self, step: str, reason: str) -> None:
        times, _ = self._failures.get(step, (0, ""))
        self._failures[step] = times + 1, reason

    def forget(self, step: str) -> None:
        self._failures.pop(step, None)

    def lasting(self) -> dict[str, str]:
        """Return the steps that failed several times in a row, and why."""
        return {step: reason for step, (times, reason) in self._failures.copy().items() if times >= LASTING_FAILURES}


@dataclass(slots=True)
class Layout:
    """Counts over all partitions, made once for each change of the topics."""

    partitions: int = 0
    internal_topics: int = 0
    leads: Counter[int] = field(default_factory=Counter)
    """Partitions that each broker leads."""
    holds: Counter[int] = field(default_factory=Counter)
    """Replicas of each broker."""
    in_sync: Counter[int] = field(default_factory=Counter)
    """Those of them that are in sync."""
    leaderless: list[str] = field(default_factory=list)
    """Names of partitions."""
    under_replicated: list[str] = field(default_factory=list)
    """Names of partitions."""
    missing: set[int] = field(default_factory=set)
    """Brokers that partitions wait for: replicas that are not in sync, and all of partitions without a leader."""
    not_preferred: Counter[int] = field(default_factory=Counter)
    """Partitions that are led by another broker, by the one that should lead."""


def layout_of(topics: Iterable[TopicState]) -> Layout:
    layout = Layout()
    placements: Counter[tuple[int, tuple[int, ...], tuple[int, ...]]] = Counter()
    for topic in topics:
        layout.partitions += len(topic.leaders)
        layout.internal_topics += is_internal(topic)
        for index, placement in enumerate(zip(topic.leaders, topic.replicas, topic.isr, strict=True)):
            placements[placement] += 1
            leader, replicas, isr = placement
            if leader < 0:
                layout.leaderless.append(f"{topic.name}-{index}")
            elif len(isr) < len(replicas):
                layout.under_replicated.append(f"{topic.name}-{index}")
    for (leader, replicas, isr), count in placements.items():
        layout.leads[leader] += count
        for each in replicas:
            layout.holds[each] += count
        for each in isr:
            layout.in_sync[each] += count
        if leader < 0:
            layout.missing.update(replicas)
        elif len(isr) < len(replicas):
            layout.missing.update(set(replicas) - set(isr))
        if leader >= 0 and replicas and leader != replicas[0]:
            layout.not_preferred[replicas[0]] += count
    return layout


def total_size(topics: Iterable[TopicState]) -> int | None:
    """Return the bytes of the topics whose sizes were read; None if there are none, or one is not known completely."""
    read = [topic.size_bytes for topic in topics if topic.sizes is not None]
    known = [size for size in read if size is not None]
    return sum(known) if known and len(known) == len(read) else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None if there are values and none is known."""
    all_values = list(values)
    known = [each for each in all_values if each is not None]
    return sum(known) if known or not all_values else None


def is_internal(topic: TopicState) -> bool:
    """As `moldau topic list`: also topics whose name begins with two underscores."""
    return topic.is_internal or topic.name.startswith("__")


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """A client metrics resource: which metrics clients are asked to push, which clients, and how often."""

    name: str
    metrics: str
    interval_ms: int | None
    match: str
    """Empty if all clients are asked."""


class View(NamedTuple):
    """What a view says. None is the default."""

    source: str
    where: str | None
    select: str | None
    format: str | None
    key: str | None
    headers: str | None
    on_error: str | None
    made_by: str | None


@dataclass(frozen=True, slots=True)
class Views:
    """The topics that are views of others."""

    by_name: Mapping[str, View] = field(default_factory=dict)
    known: Mapping[tuple[str, bytes], View | None] = field(default_factory=dict)
    """What was read of each topic, by name and id: None of a stored one. A view does not change."""

    def of_source(self, source: str) -> list[str]:
        return sorted(name for name, view in self.by_name.items() if view.source == source)


@dataclass(slots=True)
class ClusterState:
    cluster_id: str | None = None
    controller_id: int | None = None
    nodes: dict[int, BrokerNode] = field(default_factory=dict)
    """All registered brokers, also those that are down."""
    alive: frozenset[int] = frozenset()
    """As the cluster sees it, which takes it some time."""
    silent: frozenset[int] = frozenset()
    """Those that lead partitions and do not answer the console."""
    topics: dict[str, TopicState] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    views: Views = field(default_factory=Views)
    groups: dict[str, GroupState] = field(default_factory=dict)
    readers: dict[str, list[Reader]] = field(default_factory=dict)
    """By topic, the greatest lag first."""
    log_dirs: dict[int, list[LogDir]] | None = None
    quorum: Quorum | None = None
    reassignments: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    moving_sizes: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    """Bytes of each replica of a partition that is being moved, by broker."""
    metrics: dict[str, Any] = field(default_factory=dict)
    subscriptions: tuple[MetricsSubscription, ...] | None = None
    """None if the user may not see them, or the cluster has no such thing."""
    read: set[str] = field(default_factory=set)
    """The steps that succeeded at least once."""
    read_ms: WallMs = field(default=WallMs(0))
    read_error: str | None = None
    failures: StepFailures = field(default_factory=StepFailures)
    version: int = 0
