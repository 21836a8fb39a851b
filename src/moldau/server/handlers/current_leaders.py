"""Tells a client that came to the wrong broker which is the right one (KIP-951): it need not ask for metadata first.

Fetch from v16 on, Produce from v10 on.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.metadata.image import Endpoint, MetadataImage, PartitionState
from moldau.wire.messages import fetch, produce

LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def tell_fetcher(response: fetch.FetchResponse, image: MetadataImage, listener: str) -> None:
    nodes: dict[int, fetch.NodeEndpoint] = {}
    for topic in response.responses:
        for data in topic.partitions:
            found = _leader(image, topic.topic or topic.topic_id, data.partition_index, data.error_code, listener)
            if found is not None:
                state, endpoint, rack = found
                data.current_leader = fetch.LeaderIdAndEpoch(state.leader, state.leader_epoch)
                nodes[state.leader] = fetch.NodeEndpoint(state.leader, endpoint.host, endpoint.port, rack)
    response.node_endpoints = list(nodes.values())


def tell_producer(response: produce.ProduceResponse, image: MetadataImage, listener: str) -> None:
    nodes: dict[int, produce.NodeEndpoint] = {}
    for topic in response.responses:
        for done in topic.partition_responses:
            found = _leader(image, topic.name or topic.topic_id, done.index, done.error_code, listener)
            if found is not None:
                state, endpoint, rack = found
                done.current_leader = produce.LeaderIdAndEpoch(state.leader, state.leader_epoch)
                nodes[state.leader] = produce.NodeEndpoint(state.leader, endpoint.host, endpoint.port, rack)
    response.node_endpoints = list(nodes.values())


def _leader(
    image: MetadataImage, topic: str | Uuid, index: int, error_code: int, listener: str
) -> tuple[PartitionState, Endpoint, str | None] | None:
    if error_code not in LED_ELSEWHERE:
        return None
    known = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    state = known.partitions[index]
    broker = image.brokers.get(state.leader)
    endpoint = None if broker is None else broker.endpoint(listener)
    return None if broker is None or endpoint is None else (state, endpoint, broker.rack)
