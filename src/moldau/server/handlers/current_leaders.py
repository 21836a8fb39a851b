"""Names the current leader to a client that asked the wrong broker (KIP-951): it need not request metadata first.

Fetch from v16 on, Produce from v10 on.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.metadata.image import Endpoint, MetadataImage, PartitionState
from moldau.wire.messages import fetch, produce

LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def add_leaders_to_fetch(response: fetch.FetchResponse, image: MetadataImage, listener: str) -> None:
    nodes: dict[int, fetch.NodeEndpoint] = {}
    for topic in response.responses:
        for data in topic.partitions:
            leader = _leader(image, topic.topic or topic.topic_id, data.partition_index, data.error_code, listener)
            if leader is not None:
                state, endpoint, rack = leader
                data.current_leader = fetch.LeaderIdAndEpoch(state.leader, state.leader_epoch)
                nodes[state.leader] = fetch.NodeEndpoint(state.leader, endpoint.host, endpoint.port, rack)
    response.node_endpoints = list(nodes.values())


def add_leaders_to_produce(response: produce.ProduceResponse, image: MetadataImage, listener: str) -> None:
    nodes: dict[int, produce.NodeEndpoint] = {}
    for topic in response.responses:
        for result in topic.partition_responses:
            leader = _leader(image, topic.name or topic.topic_id, result.index, result.error_code, listener)
            if leader is not None:
                state, endpoint, rack = leader
                result.current_leader = produce.LeaderIdAndEpoch(state.leader, state.leader_epoch)
                nodes[state.leader] = produce.NodeEndpoint(state.leader, endpoint.host, endpoint.port, rack)
    response.node_endpoints = list(nodes.values())


def _leader(
    image: MetadataImage, topic: str | Uuid, index: int, error_code: int, listener: str
) -> tuple[PartitionState, Endpoint, str | None] | None:
    if error_code not in LED_ELSEWHERE:
        return None
    topic_image = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
    if topic_image is None or not 0 <= index < len(topic_image.partitions):
        return None
    state = topic_image.partitions[index]
    broker = image.brokers.get(state.leader)
    endpoint = None if broker is None else broker.endpoint(listener)
    return None if broker is None or endpoint is None else (state, endpoint, broker.rack)
