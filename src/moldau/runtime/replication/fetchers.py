"""All fetchers of a node, one for each broker that leads something followed here, kept as the image says.

A partition whose leader changes moves from one fetcher to another; the others are not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from moldau.base.clock import Clock, Timers
from moldau.client.peers import Peers
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.replica.follower_log import FollowerLog
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.replica.throttle import ThrottledReplicas
from moldau.runtime.replication.fetcher import FetcherParts, ReplicaFetcher, ReplicaFetchSettings


@dataclass(slots=True)
class _Home:
    partition: Partition
    fetcher: ReplicaFetcher


class ReplicaFetchers:
    """`listener` is the one by which brokers reach each other."""

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
        timers: Timers,
        throttled: ThrottledReplicas | None = None,
    ) -> None:
        self._partitions = partitions
        self._listener = listener
        self._image = MetadataImage()
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._homes: dict[str, dict[int, _Home]] = {}
        self._is_closed = False
        self._parts = FetcherParts(
            node_id, broker_epoch, self._address, peers, follower, clock, timers, settings, throttled
        )

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """After the partitions have followed the same image."""
        if self._is_closed:
            return
        self._image = image
        self.look_at([*(topic.name for topic in changes.removed), *sorted(changes.topics)])
        for broker_id in sorted(changes.brokers & self._fetchers.keys()):
            self._fetchers[broker_id].retry_now()

    def look_at(self, topics: Iterable[str]) -> None:
        """Brings what is fetched of these topics in line with what is followed here."""
        for topic in topics:
            self._look_at(topic)
        for leader_id in [leader_id for leader_id, fetcher in self._fetchers.items() if not len(fetcher)]:
            self._fetchers.pop(leader_id).close()

    def close(self) -> None:
        self._is_closed = True
        fetchers, self._fetchers, self._homes = self._fetchers, {}, {}
        for fetcher in fetchers.values():
            fetcher.close()

    def _look_at(self, topic: str) -> None:
        homes = self._homes.setdefault(topic, {})
        wanted = {
            partition.name.partition: partition
            for partition in self._partitions.of_topic(topic)
            if not partition.is_leader and partition.state.leader not in (-1, self._parts.node_id)
        }
        for index, home in list(homes.items()):
            partition = wanted.get(index)
            if partition is not home.partition or partition.state.leader != home.fetcher.leader_id:
                home.fetcher.remove(home.partition)
                del homes[index]
        for index, partition in wanted.items():
            fetcher = self._fetcher(partition.state.leader)
            fetcher.add(partition)
            homes[index] = _Home(partition, fetcher)
        if not homes:
            del self._homes[topic]

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, self._parts)
        return fetcher

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)
