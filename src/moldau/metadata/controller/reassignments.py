"""Other replicas for a partition: AlterPartitionReassignments v0–1 and ListPartitionReassignments v0.

A reassignment first adds what is new to the replicas. When all of it is in sync, what is to go goes (`partition_change`
sees to that, whoever changes the ISR). Until then it can be called off (KIP-455), or given another goal.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.controller.assignments import check_assignment
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.partition_change import Election, Wanted, active_in, change
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import PartitionChangeRecord
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def decide_alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, broker: BrokerLayers
) -> Decision[AlterPartitionReassignmentsResponse]:
    records: dict[tuple[str, int], PartitionChangeRecord] = {}
    topics: list[ReassignableTopicResponse] = []
    for asked in request.topics:
        partitions: list[ReassignablePartitionResponse] = []
        for partition in asked.partitions:
            key = (asked.name, partition.partition_index)
            try:
                if key in records:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition must be named at most once.")
                record = _reassigned(image, asked.name, partition, request.allow_replication_factor_change, broker)
            except KafkaError as refused:
                partitions.append(
                    ReassignablePartitionResponse(partition.partition_index, refused.code, refused.message)
                )
                continue
            if record is not None:
                records[key] = record
            partitions.append(ReassignablePartitionResponse(partition.partition_index, 0, None))
        topics.append(ReassignableTopicResponse(asked.name, partitions))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None, responses=topics
    )
    return Decision(response, tuple(records.values()))


def _reassigned(
    image: MetadataImage, name: str, request: ReassignablePartition, is_factor_free: bool, broker: BrokerLayers
) -> PartitionChangeRecord | None:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= request.partition_index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{request.partition_index}."
        )
    state = topic.partitions[request.partition_index]
    if request.replicas is None:
        wanted = _called_off(topic, request.partition_index, unclean_allowed(image, broker)(name))
    else:
        wanted = _aimed_at(image, state, request.replicas, is_factor_free)
    return change(image, topic, request.partition_index, wanted, active_in(image))


def _aimed_at(image: MetadataImage, state: PartitionState, replicas: Sequence[int], is_factor_free: bool) -> Wanted:
    target = check_assignment(image, replicas)
    if not is_factor_free:
        _check_factor(state, target)
    before = [replica for replica in state.replicas if replica not in state.adding_replicas]
    adding = tuple(sorted(set(target) - set(before)))
    # What an earlier goal was adding and this one does not want is dropped at once, unless nobody else is in sync.
    isr = tuple(replica for replica in state.isr if replica in target or replica in before)
    removing = tuple(sorted(set(before if isr else state.replicas) - set(target)))
    return Wanted(isr=isr or state.isr, replicas=target + removing, removing=removing, adding=adding)


def _check_factor(state: PartitionState, target: tuple[int, ...]) -> None:
    """KIP-860: as many replicas as it would have when the reassignment under way, if any, is done."""
    factor = len(state.replicas) - len(state.removing_replicas)
    if len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )


def _called_off(topic: TopicImage, index: int, is_unclean_allowed: bool) -> Wanted:
    """Back to the replicas from before: without those that were being added."""
    state = topic.partitions[index]
    if not state.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = tuple(replica for replica in state.replicas if replica not in state.adding_replicas)
    isr = tuple(replica for replica in state.isr if replica not in state.adding_replicas)
    if not isr and not is_unclean_allowed:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election.",
        )
    election = Election.UNCLEAN if is_unclean_allowed else Election.ONLINE
    return Wanted(isr=isr or replicas[:1], replicas=replicas, removing=(), adding=(), election=election)


def decide_list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Decision[ListPartitionReassignmentsResponse]:
    """Those under way of the partitions named, or of all."""
    asked: list[tuple[str, Sequence[int] | None]] = (
        [(name, None) for name in sorted(image.topics)]
        if request.topics is None
        else [(each.name, each.partition_indexes) for each in request.topics if each.name in image.topics]
    )
    topics: list[OngoingTopicReassignment] = []
    for name, indexes in asked:
        ongoing = _ongoing(image.topics[name], indexes)
        if ongoing:
            topics.append(OngoingTopicReassignment(name, ongoing))
    return Decision(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _ongoing(topic: TopicImage, indexes: Sequence[int] | None) -> list[OngoingPartitionReassignment]:
    chosen = range(len(topic.partitions)) if indexes is None else indexes
    return [
        OngoingPartitionReassignment(index, state.replicas, state.adding_replicas, state.removing_replicas)
        for index in chosen
        if 0 <= index < len(topic.partitions) and (state := topic.partitions[index]).is_reassigning
    ]
