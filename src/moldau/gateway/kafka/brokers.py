"""The nodes of the cluster on connections of one user, and the topics that were learnt from them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise, resolved
from moldau.client.cluster import Topic
from moldau.client.peer_connections import PeerConnection, PeerConnections, TlsContext
from moldau.client.requests.metadata import metadata_request
from moldau.security.sasl.client import ClientLogin
from moldau.wire.apis import ApiKey
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from moldau.wire.schema import Message

CLIENT_ID: Final = "moldau-gateway"
REQUEST_MS: Final = 10_000
TOPIC_AGE_S: Final = 60.0
"""After so long a topic is asked for again: it may have more partitions."""
ANSWER_LOST: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Reach:
    """How to connect to the cluster, and who is connected."""

    bootstrap: tuple[tuple[str, int], ...]
    tls: TlsContext | None = None
    peers: Callable[[asyncio.AbstractEventLoop, TlsContext | None], PeerConnections] = PeerConnections
    connected: set[Brokers] = field(default_factory=set)
    """Those who have asked something since they were created or rested: whoever forgets one leaves no connections
    open."""


class _Learnt(NamedTuple):
    topic: Topic
    at: float


class Brokers:
    def __init__(self, reach: Reach, login: ClientLogin | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reach, self._login = reach, login
        self._connections = reach.peers(self._loop, reach.tls)
        self.asked_at = self._loop.time()
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, _Learnt] = {}
        self._learning: dict[str, asyncio.Task[Topic]] = {}
        self._is_closed = False

    def beside(self) -> Brokers:
        """Return other connections of the same user, which know the same nodes and topics at first: a fetch that waits
        for records delays all later requests of its connection."""
        other = Brokers(self._reach, self._login)
        other._nodes, other._topics = self._nodes, dict(self._topics)
        return other

    def rest(self) -> None:
        """Close the connections; later requests open new ones."""
        self._reach.connected.discard(self)
        self._connections.close_all()
        if not self._is_closed:
            self._connections = self._reach.peers(self._loop, self._reach.tls)

    def close(self) -> None:
        """Close the connections for good. Whoever waits for an answer is told that there is none."""
        self._is_closed = True
        self.rest()

    async def greet(self) -> None:
        """Connect and log in. KafkaError if no broker answers, or the user is refused."""
        await self.ask_any(ApiKey.METADATA, metadata_request([]))

    # --- requests ---------------------------------------------------------------------------------------------------

    def know(self, node: int, host: str, port: int) -> None:
        """Note where a node is, as a broker said it."""
        self._nodes[node] = host, port

    def send(
        self, node: int, api: ApiKey, request: Message, timeout_ms: int = REQUEST_MS, version: int | None = None
    ) -> Promise[Any]:
        """Return a promise of the response of a node, or of a KafkaError: why it refused the login, if it did."""
        if node not in self._nodes:
            return resolved(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"node {node} is not among the brokers"))
        return self._send(self._nodes[node], api, request, timeout_ms, version)

    async def ask(
        self, node: int, api: ApiKey, request: Message, timeout_ms: int = REQUEST_MS, version: int | None = None
    ) -> Any:
        """Return the response of a node. KafkaError if there is none."""
        return await self._answer(self.send(node, api, request, timeout_ms, version))

    async def ask_any(self, api: ApiKey, request: Message, timeout_ms: int = REQUEST_MS) -> Any:
        """Return the response of the first node that has one."""
        known = [*self._nodes.values()]
        random.shuffle(known)
        error = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        for address in dict.fromkeys([*known, *self._reach.bootstrap]):
            try:
                return await self._answer(self._send(address, api, request, timeout_ms))
            except KafkaError as failed:
                if failed.code not in ANSWER_LOST:
                    raise
                error = failed
        raise KafkaError(error.code, f"no broker answers: {error.message}")

    async def ask_controller(self, api: ApiKey, request: Message, timeout_ms: int = REQUEST_MS) -> Any:
        """Return the response of the controller; where brokers forward to it, of the one that stands for it."""
        cluster: MetadataResponse = await self.ask_any(ApiKey.METADATA, metadata_request([]))
        self._nodes = {node.node_id: (node.host, node.port) for node in cluster.brokers}
        return await self.ask(cluster.controller_id, api, request, timeout_ms)

    def _send(
        self, address: tuple[str, int], api: ApiKey, request: Message, timeout_ms: int, version: int | None = None
    ) -> Promise[Any]:
        self.asked_at = self._loop.time()
        if not self._is_closed:
            self._reach.connected.add(self)
        connection = self._connections.to(*address, CLIENT_ID, self._login)
        return connection.ask(api, request, timeout_ms, version).map(partial(_with_reason, connection))

    async def _answer(self, promise: Promise[Any]) -> Any:
        answered: asyncio.Future[Any] = self._loop.create_future()
        promise.then(lambda response: None if answered.done() else answered.set_result(response))
        response = await answered
        if isinstance(response, KafkaError):
            raise response
        return response

    # --- topics -----------------------------------------------------------------------------------------------------

    async def topic(self, name: str) -> Topic:
        """Return a topic with its leaders. KafkaError if there is none, or no right to see it."""
        known = self.known(name)
        return await asyncio.shield(self._learn(name)) if known is None else known

    def known(self, name: str) -> Topic | None:
        """Return a topic if it was learnt. It is learnt again from time to time."""
        learnt = self._topics.get(name)
        if learnt is None:
            return None
        if self._loop.time() - learnt.at > TOPIC_AGE_S:
            self._learn(name)
        return learnt.topic

    def forget(self, name: str) -> None:
        """The leaders of this topic may have moved: it is asked for again when it is needed."""
        self._topics.pop(name, None)

    def leader(self, topic: Topic, partition: int) -> int | None:
        """Return the leader of a partition; None if nobody knows one."""
        node = topic.leaders.get(partition, -1)
        return node if node in self._nodes else None

    def by_leader(
        self, topic: Topic, partitions: Iterable[int]
    ) -> tuple[dict[int, list[TopicPartition]], list[KafkaError]]:
        """Return the partitions by leader, and errors of those without one."""
        led: dict[int, list[TopicPartition]] = {}
        errors: list[KafkaError] = []
        for partition in partitions:
            node = self.leader(topic, partition)
            if node is None:
                errors.append(_no_leader(topic, partition))
            else:
                led.setdefault(node, []).append(TopicPartition(topic.name, partition))
        return led, errors

    def _learn(self, name: str) -> asyncio.Task[Topic]:
        """Ask for a topic, once at a time."""
        task = self._learning.get(name)
        if task is None:
            task = self._learning[name] = self._loop.create_task(self._ask_for(name), name=f"metadata of {name}")
            task.add_done_callback(lambda done: self._learnt(name, done))
        return task

    def _learnt(self, name: str, done: asyncio.Task[Topic]) -> None:
        del self._learning[name]
        if not done.cancelled() and done.exception() is not None:
            self._topics.pop(name, None)

    async def _ask_for(self, name: str) -> Topic:
        response: MetadataResponse = await self.ask_any(ApiKey.METADATA, metadata_request([name]))
        self._nodes = {node.node_id: (node.host, node.port) for node in response.brokers}
        topic = _topic_of(name, response.topics)
        self._topics[name] = _Learnt(topic, self._loop.time())
        return topic


def _topic_of(name: str, topics: Iterable[MetadataResponseTopic]) -> Topic:
    for topic in topics:
        code = ErrorCode(topic.error_code)
        if topic.name == name and code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and topic.partitions:
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            return Topic(name, bytes(topic.topic_id), leaders, topic.is_internal)
        if code:
            raise _topic_error(name, code)
    raise _topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _topic_error(name: str, code: ErrorCode) -> KafkaError:
    words: Mapping[ErrorCode, str] = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: f"there is no topic {name}",
        ErrorCode.INVALID_TOPIC_EXCEPTION: f"{name} cannot be the name of a topic",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"no right to see the topic {name}",
    }
    return KafkaError(code, words.get(code, f"topic {name}: {code.name}"))


def _no_leader(topic: Topic, partition: int) -> KafkaError:
    if partition not in topic.leaders:
        have = f"{topic.name} has the partitions 0 to {len(topic.leaders) - 1}"
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}: {have}")
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{partition} has no leader")


def _with_reason(connection: PeerConnection, response: Any) -> Any:
    """Return the response, or why there is none: a refused login looks like a lost connection."""
    is_lost = isinstance(response, KafkaError) and response.code is ErrorCode.NETWORK_EXCEPTION
    return connection.refusal if is_lost and connection.refusal is not None else response
