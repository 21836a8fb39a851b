"""A cluster as a client sees it: topics, leaders, a channel to each node, and retries.

For the admin client above it (`admin`), for the Spark connector and for tools. It has only what every caller needs:
metadata, offsets by time, coordinators, retries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.channel import Channel
from moldau.client.properties import OauthCallback, security
from moldau.client.requests.ask import Ask, raise_error
from moldau.client.requests.groups import find_coordinator_request
from moldau.client.requests.metadata import metadata
from moldau.client.requests.partitions import delete_records, list_offsets
from moldau.client.requests.topics import NewTopic, create_topics
from moldau.wire.apis import ApiKey
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from moldau.wire.schema import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    }
)
"""Errors that are temporary, mostly because leaders move; the caller retries with fresh metadata."""

GROUP: Final = 0
TRANSACTIONAL_ID: Final = 1
SHARE_PARTITION: Final = 2
"""The types of keys that have a coordinator."""
FIND_COORDINATOR_VERSIONS: Final = (4, 6)
"""FindCoordinator has several keys in one request from version 4 on."""
CREATE_TIMEOUT_MS: Final = 10_000
EARLIEST: Final = -2
LATEST: Final = -1
"""In place of a timestamp: the start and the end of a log."""
Offsets = dict[TopicPartition, int]

BACKOFF_SECONDS_FIRST: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 1.0
CONNECT_SECONDS: Final = 10.0
NODE_UNKNOWN: Final = -1
"""The key of a connection to a bootstrap server, whose node id the client does not know."""


class Topic(NamedTuple):
    name: str
    """Its name in requests: that by which callers know the topic, but in Spark's `ViewCluster` that of a view of it."""
    topic_id: bytes
    leaders: Mapping[int, int]
    """Partition to node id; -1 while there is no leader."""
    is_internal: bool = False


class Unreachable(ConnectionError):
    """No node of the cluster could be reached."""


class Cluster:
    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        timeout_seconds: float = CONNECT_SECONDS,
        oauth_cb: OauthCallback | None = None,
        failover_seconds: float | None = None,
    ) -> None:
        """`failover_seconds` is how long each of several nodes may take to accept a connection and to answer before the
        next one is asked; None: `timeout_seconds`, as if there is only one."""
        self.bootstrap = bootstrap
        self.cluster_id: str | None = None
        """None until metadata was read."""
        self._security = security(properties, oauth_cb)
        self._timeout_seconds = timeout_seconds
        self._failover_seconds = failover_seconds
        self._addresses: dict[int, tuple[str, int]] = {}
        self._channels: dict[int, Channel] = {}
        self._topics: dict[str, Topic] = {}

    # --- channels ---------------------------------------------------------------------------------------------------

    def channel(self, node_id: int) -> Channel:
        """Return the connection to a node; open one if there is none."""
        channel = self._channels.get(node_id)
        if channel is None:
            if node_id not in self._addresses:
                raise ConnectionError(f"node {node_id} is no longer part of the cluster")
            host, port = self._addresses[node_id]
            channel = self._channels[node_id] = Channel(host, port, self._security, self._timeout_seconds)
        return channel

    def drop(self, node_id: int) -> None:
        """Close a connection whose state is unknown."""
        channel = self._channels.pop(node_id, None)
        if channel is not None:
            channel.close()

    @property
    def timeout_ms(self) -> int:
        """How long a request may take."""
        return int(self._timeout_seconds * 1000)

    def close(self) -> None:
        """Close all connections and discard the metadata; the next call starts again."""
        for node_id in list(self._channels):
            self.drop(node_id)
        self.forget()

    def forget(self) -> None:
        """Discard the metadata of topics, which may be outdated; the next call requests it again."""
        self._topics.clear()

    def _any_channel(self, connect_seconds: float | None = None) -> Channel:
        """Return a connection to any node that answers: an open one, a bootstrap server, or a known node. To connect to
        each of them may take `connect_seconds`."""
        for channel in self._channels.values():
            if not channel.in_flight:
                return channel
        addresses = list(dict.fromkeys(chain(addresses_of(self.bootstrap), self._addresses.values())))
        is_hurried = connect_seconds is None and len(addresses) > 1 and self._failover_seconds is not None
        seconds = self._failover_seconds if is_hurried else connect_seconds
        attempts = [(address, seconds) for address in addresses]
        errors: list[str] = []
        for (host, port), seconds in attempts:
            try:
                self._channels[NODE_UNKNOWN] = Channel(host, port, self._security, self._timeout_seconds, seconds)
                return self._channels[NODE_UNKNOWN]
            except (OSError, MalformedData) as error:
                errors.append(f"{host}:{port}: {error}")
                if is_hurried and isinstance(error, TimeoutError) and len(attempts) == len(addresses):
                    attempts.append(((host, port), None))  # it may only be busy: if no other answers, wait for it
        raise Unreachable(f"No broker answers: {'; '.join(dict.fromkeys(errors))}")

    @property
    def addresses(self) -> Mapping[int, tuple[str, int]]:
        """The addresses of the brokers in the metadata that was read last."""
        return self._addresses

    def nodes(self) -> Mapping[int, tuple[str, int]]:
        """Return the addresses of all current brokers, by id."""
        self.refresh(())
        return self._addresses

    def ask_any(
        self, key: ApiKey, request: Message, response_type: type[M], versions: tuple[int, int] | None = None
    ) -> M:
        """Send a request that every node can answer; return its response."""
        return self._any_channel().ask(key, request, response_type, versions)

    def asking_within(self, seconds: float) -> Ask:
        """Return an `ask_any` whose responses may take this long, and a new connection no longer."""

        def ask(key: ApiKey, request: Message, response_type: type[M], /) -> M:
            channel = self._any_channel(seconds if seconds < self._timeout_seconds else None)
            with channel.waiting(seconds):
                return channel.ask(key, request, response_type)

        return ask

    # --- retries ----------------------------------------------------------------------------------------------------

    def retry(self, action: Callable[[], T], timeout_ms: float, retriable: frozenset[ErrorCode] = RETRIABLE) -> T:
        """Run `action`, with fresh metadata each time, until it succeeds; raise the last error after `timeout_ms`."""
        deadline = time.monotonic() + timeout_ms / 1000
        wait = BACKOFF_SECONDS_FIRST
        while True:
            try:
                return action()
            except (OSError, MalformedData):
                self.close()
                if time.monotonic() + wait > deadline:
                    raise
            except KafkaError as error:
                self.forget()
                if error.code not in retriable or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(BACKOFF_SECONDS_MAX, wait * 2)

    # --- metadata ---------------------------------------------------------------------------------------------------

    def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
        """Request the metadata of these topics (of all if `names` is None) and the addresses of the brokers.

        A topic that does not exist is removed from the metadata; other errors are raised.
        """
        response = metadata(self.ask_any, names, create)
        self.cluster_id = response.cluster_id
        self._addresses = {node.node_id: (node.host, node.port) for node in response.brokers}
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                self._topics.pop(name, None)
            elif topic.error_code:
                raise KafkaError(ErrorCode(topic.error_code), f"topic {name}: {ErrorCode(topic.error_code).name}")
            else:
                leaders = {each.partition_index: each.leader_id for each in topic.partitions}
                self._topics[name] = Topic(name, bytes(topic.topic_id), leaders, topic.is_internal)

    def topics(self) -> Mapping[str, Topic]:
        """Return all current topics by name, including internal ones."""
        self.forget()
        self.refresh(None)
        return self._topics

    def topic(self, name: str, create: bool = False) -> Topic:
        if name not in self._topics:
            self.refresh([name], create)
        return self._known(name)

    def _known(self, name: str) -> Topic:
        if name not in self._topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name} at {self.bootstrap}")
        return self._topics[name]

    def leader(self, partition: TopicPartition) -> int:
        """Return the node id of the leader. Raises KafkaError if there is no such partition, or no leader."""
        node = self.topic(partition.topic).leaders.get(partition.partition)
        if node is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {partition}")
        if node not in self._addresses:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return node

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions by the node id of their leader. Raises KafkaError if a partition has no leader."""
        partitions = list(partitions)
        topics = by_topic(partitions)
        self._learn(topics)
        for name in topics:
            self._known(name)
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            led.setdefault(self.leader(partition), []).append(partition)
        return led

    def _learn(self, names: Iterable[str]) -> None:
        """Request the metadata of all unknown topics at once."""
        if unknown := [name for name in names if name not in self._topics]:
            self.refresh(unknown)

    def led(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        """Return the partitions that have a leader, by leader, and the errors of the others."""
        led: dict[int, list[TopicPartition]] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        topics = by_topic(partitions)
        find: Callable[[str], Topic] = self._known
        try:
            self._learn(topics)
        except KafkaError:  # of one of them: ask for each
            find = self.topic
        for name, indexes in topics.items():
            try:
                find(name)
            except KafkaError as error:
                errors |= {TopicPartition(name, index): error for index in indexes}
                continue
            for partition in (TopicPartition(name, index) for index in indexes):
                try:
                    led.setdefault(self.leader(partition), []).append(partition)
                except KafkaError as error:
                    errors[partition] = error
        return led, errors

    # --- offsets and topics -----------------------------------------------------------------------------------------

    def list_offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Offsets:
        """Return for each partition the offset of the first record that is not older than its timestamp.

        The timestamps LATEST (-1) and EARLIEST (-2) stand for the end and the start of the log. If all records of a
        partition are older than its timestamp, its offset is -1.
        """
        self.by_leader(timestamps)
        offsets: Offsets = {}
        for partition, offset in self.each_offset(timestamps, read_committed).items():
            if isinstance(offset, KafkaError):
                raise KafkaError(offset.code, f"{partition}: the offsets cannot be listed: {offset.code.name}")
            offsets[partition] = offset
        return offsets

    def each_offset(
        self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False
    ) -> dict[TopicPartition, int | KafkaError]:
        """Return the same as `list_offsets`, or the error of each partition: one hides no other."""
        led, errors = self.led(timestamps)
        results: dict[TopicPartition, int | KafkaError] = {**errors}
        for node, partitions in led.items():
            requested = {self._requested(each): each for each in partitions}
            found = list_offsets(
                self.channel(node).ask,
                {named: timestamps[each] for named, each in requested.items()},
                read_committed,
                self.timeout_ms,
            )
            results |= {requested.get(named, named): offset for named, offset in found.items()}
        return results

    def _requested(self, partition: TopicPartition) -> TopicPartition:
        """Return the partition under the name of its topic in requests."""
        return TopicPartition(self.topic(partition.topic).name, partition.partition)

    def latest(self, partitions: Iterable[TopicPartition], read_committed: bool = False) -> Offsets:
        return self.list_offsets(dict.fromkeys(partitions, LATEST), read_committed)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets; raise the first error."""
        for partition, start in self.each_deletion(before).items():
            if isinstance(start, KafkaError):
                raise KafkaError(start.code, f"{partition}: records cannot be deleted: {start.code.name}")

    def each_deletion(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records before these offsets; return where each log starts now, or its error."""
        led, errors = self.led(before)
        results: dict[TopicPartition, int | KafkaError] = {**errors}
        for node, partitions in led.items():
            its_offsets = {each: before[each] for each in partitions}
            results |= delete_records(self.channel(node).ask, its_offsets, self.timeout_ms)
        return results

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = -1, configs: Mapping[str, str] | None = None
    ) -> bool:
        """Create a topic. Return False if it already exists. A replication factor of -1 is the broker's default."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        (result,) = create_topics(self.ask_any, [topic], CREATE_TIMEOUT_MS)
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise_error(result.error_code, result.error_message)
        return True

    # --- coordinators -----------------------------------------------------------------------------------------------

    def coordinators(self, key_type: int, keys: Sequence[str]) -> Sequence[Coordinator]:
        """Return the coordinator of each group or transactional id, or its error, and read the addresses of brokers."""
        self.nodes()
        request = find_coordinator_request(key_type, keys)
        response = self.ask_any(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, FIND_COORDINATOR_VERSIONS)
        return response.coordinators


def addresses_of(bootstrap: str) -> Iterator[tuple[str, int]]:
    """Yield the addresses of a list. As in Kafka's client, empty ones beside others and a protocol in front
    (`SASL_SSL://`) are ignored."""
    for address in [address for address in bootstrap.split(",") if address.strip()] or [bootstrap]:
        host, colon, port = address.strip().rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"kafka.bootstrap.servers: {address.strip()!r} is not host:port")
        yield host.strip("[]"), int(port)


_clusters: dict[tuple[str, tuple[tuple[str, str], ...]], Cluster] = {}


def cluster_of(bootstrap: str, properties: Mapping[str, str]) -> Cluster:
    """Return this process's connections to a cluster, cached for later callers: Spark reuses its Python workers."""
    key = bootstrap, tuple(sorted(properties.items()))
    if key not in _clusters:
        _clusters[key] = Cluster(bootstrap, properties)
    return _clusters[key]
