"""Reassigning replicas: AlterPartitionReassignments v0–1 and ListPartitionReassignments v0.

A reassignment first adds the new replicas; the ISR change that makes the last of them in sync also removes the old ones
(`partition_change`). Until then the reassignment can be cancelled (KIP-455) or get another target.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import CHECKS_A_TURN, LISTED_A_TURN
from moldau.metadata.controller.assignments import check_assignment
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.partition_change import DesiredState, Election, active_in, change_record
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.controller.views import refuse_view
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.wire.log_records.metadata import PartitionChangeRecord
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
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, broker_configs: BrokerLayers
) -> Steps[Decision[AlterPartitionReassignmentsResponse]]:
    records: dict[tuple[str, int], PartitionChangeRecord] = {}
    topics: list[ReassignableTopicResponse] = []
    turn = TurnItems(LISTED_A_TURN)
    for requested_topic in request.topics:
        if turn.ends_after(1):
            yield
        partitions: list[ReassignablePartitionResponse] = []
        for partition in requested_topic.partitions:
            if turn.ends_after(1 + len(partition.replicas or ())):
                yield
            key = (requested_topic.name, partition.partition_index)
            try:
                if key in records:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition must be named at most once.")
                record = _reassignment_record(
                    image, requested_topic.name, partition, request.allow_replication_factor_change, broker_configs
                )
            except KafkaError as refused:
                partitions.append(
                    ReassignablePartitionResponse(partition.partition_index, refused.code, refused.message)
                )
                continue
            if record is not None:
                records[key] = record
            partitions.append(ReassignablePartitionResponse(partition.partition_index, 0, None))
        topics.append(ReassignableTopicResponse(requested_topic.name, partitions))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None, responses=topics
    )
    return Decision(response, tuple(records.values()))


def _reassignment_record(
    image: MetadataImage,
    name: str,
    request: ReassignablePartition,
    may_change_factor: bool,
    broker_configs: BrokerLayers,
) -> PartitionChangeRecord | None:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= request.partition_index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{request.partition_index}."
        )
    refuse_view(image, topic)
    state = topic.partitions[request.partition_index]
    if request.replicas is None:
        desired = _cancelled_state(topic, request.partition_index, unclean_allowed(image, broker_configs)(name))
    else:
        desired = _state_for_target(image, state, request.replicas, may_change_factor)
    return change_record(image, topic, request.partition_index, desired, active_in(image))


def _state_for_target(
    image: MetadataImage, state: PartitionState, replicas: Sequence[int], may_change_factor: bool
) -> DesiredState:
    target = check_assignment(image, replicas)
    if not may_change_factor:
        _check_factor(state, target)
    before_reassignment = [replica for replica in state.replicas if replica not in state.adding_replicas]
    adding = tuple(sorted(set(target) - set(before_reassignment)))
    # Drop immediately the replicas that only an earlier target was adding, unless no other replica is in sync.
    isr = tuple(replica for replica in state.isr if replica in target or replica in before_reassignment)
    removing = tuple(sorted(set(before_reassignment if isr else state.replicas) - set(target)))
    return DesiredState(isr=isr or state.isr, replicas=target + removing, removing=removing, adding=adding)


def _check_factor(state: PartitionState, target: tuple[int, ...]) -> None:
    """KIP-860: refuse a target whose size differs from the replication factor, or from that which the current
    reassignment leads to."""
    factor = len(state.replicas) - len(state.removing_replicas)
    if len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )


def _cancelled_state(topic: TopicImage, index: int, is_unclean_allowed: bool) -> DesiredState:
    """Return the state before the reassignment: without the replicas that were being added."""
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
    return DesiredState(isr=isr or replicas[:1], replicas=replicas, removing=(), adding=(), election=election)


def decide_list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Steps[Decision[ListPartitionReassignmentsResponse]]:
    """List the ongoing reassignments of the named partitions, or of all."""
    requested: list[tuple[str, Sequence[int] | None]] = (
        [(name, None) for name in sorted(image.topics) if name not in image.views]
        if request.topics is None
        else [(each.name, each.partition_indexes) for each in request.topics if each.name in image.topics]
    )
    topics: list[OngoingTopicReassignment] = []
    turn = TurnItems(CHECKS_A_TURN)
    for name, indexes in requested:
        topic = image.topics[name]
        ongoing: list[OngoingPartitionReassignment] = []
        for some in split(range(len(topic.partitions)) if indexes is None else indexes, CHECKS_A_TURN):
            ongoing += _ongoing_reassignments(topic, some)
            if turn.ends_after(len(some)):
                yield
        if turn.ends_after(1):
            yield
        if ongoing:
            topics.append(OngoingTopicReassignment(name, ongoing))
    return Decision(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _ongoing_reassignments(topic: TopicImage, indexes: Sequence[int]) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(index, state.replicas, state.adding_replicas, state.removing_replicas)
        for index in indexes
        if 0 <= index < len(topic.partitions) and (state := topic.partitions[index]).is_reassigning
    ]
