"""The leaders that a broker may name. In Fetch (since v16) and Produce (since v10) it adds the current leader to the
response for a client that asked the wrong broker (KIP-951), so that the client can retry without a Metadata request.
In earlier versions these fields are not encoded.

A broker does not name itself where another may lead by now (runtime/broker/leader_lease.py), and whoever else it names
may be replaced too. Many clients ask the broker that they are connected to again and again, whatever it answers: the
second time it closes the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import Uuid
from moldau.metadata.image import Endpoint, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import NO_LEADER
from moldau.replica.partitions import Withheld
from moldau.wire.messages import fetch, produce, share_acknowledge, share_fetch

ASKED_MAX: Final = 10_000
"""Connections that are remembered; others are answered again."""
LATELY_MS: Final = 10_000
"""A client that gets on asks every few minutes, one that does not several times a second."""
ERRORS_WITH_CURRENT_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def known_states(topic: TopicImage, withheld: Withheld) -> Sequence[PartitionState]:
    """Return the topic's partitions, without a leader where this node led and another may lead by now."""
    if not withheld:
        return topic.partitions
    return [
        replace(state, leader=NO_LEADER) if (topic.stored_id, index) in withheld else state
        for index, state in enumerate(topic.partitions)
    ]


class AskedLately:
    """The connections of clients that asked this node for leaders or coordinators while it was cut off."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._addresses: set[str] = set()

    def check(self, address: str) -> None:
        """Raise MalformedData, which closes the connection, if this client has asked a moment ago: the answer did not
        help."""
        if address in self._addresses:
            self._addresses.discard(address)
            raise MalformedData("others may lead by now what the client asks for: it should ask another broker")
        if not self._addresses:
            self._timers.after_ms(LATELY_MS, self._addresses.clear)
        if len(self._addresses) < ASKED_MAX:
            self._addresses.add(address)


def add_leaders_to_fetch(
    response: fetch.FetchResponse, image: MetadataImage, listener: str, withheld: Withheld
) -> None:
    named = [
        (topic.topic or topic.topic_id, data.partition_index, data.error_code, data)
        for topic in response.responses
        for data in topic.partitions
    ]
    _add_leaders(response, named, fetch, image, listener, withheld)


def add_leaders_to_produce(
    response: produce.ProduceResponse, image: MetadataImage, listener: str, withheld: Withheld
) -> None:
    named = [
        (topic.name or topic.topic_id, result.index, result.error_code, result)
        for topic in response.responses
        for result in topic.partition_responses
    ]
    _add_leaders(response, named, produce, image, listener, withheld)


def add_leaders_to_share_fetch(
    response: share_fetch.ShareFetchResponse, image: MetadataImage, listener: str, withheld: Withheld
) -> None:
    named = [
        (topic.topic_id, data.partition_index, data.error_code or data.acknowledge_error_code, data)
        for topic in response.responses
        for data in topic.partitions
    ]
    _add_leaders(response, named, share_fetch, image, listener, withheld)


def add_leaders_to_share_acknowledge(
    response: share_acknowledge.ShareAcknowledgeResponse, image: MetadataImage, listener: str, withheld: Withheld
) -> None:
    named = [
        (topic.topic_id, data.partition_index, data.error_code, data)
        for topic in response.responses
        for data in topic.partitions
    ]
    _add_leaders(response, named, share_acknowledge, image, listener, withheld)


def _add_leaders(
    response: Any,
    named: Iterable[tuple[str | Uuid, int, int, Any]],
    messages: Any,
    image: MetadataImage,
    listener: str,
    withheld: Withheld,
) -> None:
    """`named` are the topic, index and error code of each partition, and what the response says of it; `messages` is
    the module of the response."""
    nodes: dict[int, Any] = {}
    for topic, index, error_code, data in named:
        leader = _leader(image, topic, index, error_code, listener, withheld)
        if leader is not None:
            state, endpoint, rack = leader
            data.current_leader = messages.LeaderIdAndEpoch(state.leader, state.leader_epoch)
            nodes[state.leader] = messages.NodeEndpoint(state.leader, endpoint.host, endpoint.port, rack)
    response.node_endpoints = list(nodes.values())


def _leader(
    image: MetadataImage,
    topic: str | Uuid,
    index: int,
    error_code: int,
    listener: str,
    withheld: Withheld,
) -> tuple[PartitionState, Endpoint, str | None] | None:
    """Return the partition's state, and the leader's endpoint and rack. Return None if the error is not about the
    leader, the partition or its leader is unknown, or the leader does not have `listener`."""
    if error_code not in ERRORS_WITH_CURRENT_LEADER:
        return None
    topic_image = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
    if topic_image is None or not 0 <= index < len(topic_image.partitions):
        return None
    if (topic_image.stored_id, index) in withheld:
        return None
    state = topic_image.partitions[index]
    broker = image.brokers.get(state.leader)
    endpoint = None if broker is None else broker.endpoint(listener)
    return None if broker is None or endpoint is None else (state, endpoint, broker.rack)
