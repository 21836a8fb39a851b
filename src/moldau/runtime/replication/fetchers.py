"""All fetchers of a node, one for each broker that leads a partition which this node follows.

A partition whose leader changes moves from one fetcher to another; the others are not disturbed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from moldau.base.clock import Clock
from moldau.base.cluster_settings import ReplicaFetchSettings
from moldau.base.steps import TurnItems, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.client.peers import Peers
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.replica.follower_log import FollowerLog
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.replica.throttle import ThrottledReplicas
from moldau.runtime.own_work import OwnWork
from moldau.runtime.replication.fetcher import FetcherParts, ReplicaFetcher


@dataclass(slots=True)
class _Assignment:
    partition: Partition
    fetcher: ReplicaFetcher


class ReplicaFetchers:
    """`listener` is the name of the listener for connections between brokers."""

    def __init__(
        self,
        node_id: int,
        partitions: Partitions,
        follower: FollowerLog,
        peers: Peers,
        listener: str,
        broker_epoch: Callable[[], int],
        settings: ReplicaFetchSettings,
        clock: Clock,
        own_work: OwnWork,
        throttled: ThrottledReplicas | None = None,
    ) -> None:
        self._partitions = partitions
        self._listener = listener
        self._image = MetadataImage()
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._assignments: dict[str, dict[int, _Assignment]] = {}
        self._removed: deque[tuple[str, Sequence[int]]] = deque()
        """Partitions of deleted topics that are still fetched."""
        self._is_closed = False
        self._parts = FetcherParts(
            node_id, broker_epoch, self._address, peers, follower, clock, own_work, settings, throttled
        )

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Update the fetchers. The partitions must have been updated to the same image before."""
        if self._is_closed:
            return
        self._image = image
        for topic in changes.removed:
            for some in split(sorted(self._assignments.get(topic.name, ())), ITEMS_A_TURN):
                self._removed.append((topic.name, some))
        self.remove_some()
        for name in sorted(changes.topics):
            self._update(name, sorted(changes.topics[name]))
        self._close_idle()
        for broker_id in sorted(changes.brokers & self._fetchers.keys()):
            self._fetchers[broker_id].retry_now()

    def remove_some(self) -> bool:
        """Stop fetching some hundred partitions of deleted topics. Return whether some are left."""
        turn = TurnItems(ITEMS_A_TURN)
        is_over = False
        while self._removed and not is_over:
            topic, some = self._removed.popleft()
            self._update(topic, some)
            is_over = turn.ends_after(1 + len(some))
        self._close_idle()
        return bool(self._removed)

    def close(self) -> None:
        self._is_closed = True
        self._removed.clear()
        fetchers, self._fetchers, self._assignments = self._fetchers, {}, {}
        for fetcher in fetchers.values():
            fetcher.close()

    def _update(self, topic: str, indexes: Iterable[int]) -> None:
        """Fetch exactly those of these partitions that this node follows."""
        assignments = self._assignments.setdefault(topic, {})
        for index in indexes:
            partition = self._partitions.find(topic, index)
            if partition is not None and not self._is_followed(partition):
                partition = None
            assignment = assignments.get(index)
            if assignment is not None and (
                partition is not assignment.partition or partition.state.leader != assignment.fetcher.leader_id
            ):
                assignment.fetcher.remove(assignment.partition)
                del assignments[index]
            if partition is not None:
                fetcher = self._fetcher(partition.state.leader)
                fetcher.add(partition)
                assignments[index] = _Assignment(partition, fetcher)
        if not assignments:
            del self._assignments[topic]

    def _is_followed(self, partition: Partition) -> bool:
        return not partition.is_leader and partition.state.leader not in (-1, self._parts.node_id)

    def _close_idle(self) -> None:
        for leader_id in [leader_id for leader_id, fetcher in self._fetchers.items() if not len(fetcher)]:
            self._fetchers.pop(leader_id).close()

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, self._parts)
        return fetcher

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)
