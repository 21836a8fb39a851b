"""AlterPartition v2–3: a leader proposes another ISR for partitions it leads. Each partition by itself.

Only what the leader based on the newest state counts: its leader epoch and the partition epoch must be those of the
image. A member must be a broker that may be in sync, and (v3) the very incarnation of it that the leader saw fetching:
one that was restarted since may have lost what it had (KIP-903). The proposal that brings the last new replica into the
ISR ends a reassignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.metadata.apply import changed_partition
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.partition_change import Election, Wanted, active_in, change
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.image import RECOVERED, RECOVERING, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

ANY_EPOCH = -1
"""A broker epoch that the leader does not know: v2 has none."""


def decide_alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, broker: BrokerLayers
) -> Decision[AlterPartitionResponse]:
    found = image.brokers.get(request.broker_id)
    if found is None or found.epoch != request.broker_epoch:
        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    allowed = unclean_allowed(image, broker)
    records: dict[tuple[Uuid, int], PartitionChangeRecord] = {}
    topics: list[ResponseTopicData] = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id)
        partitions: list[ResponsePartitionData] = []
        for partition in asked.partitions:
            key = (asked.topic_id, partition.partition_index)
            try:
                # The second proposal for a partition in one request does not know of the first.
                if key in records:
                    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
                state = _checked(image, topic, partition, request.broker_id)
            except KafkaError as refused:
                partitions.append(ResponsePartitionData(partition.partition_index, refused.code))
                continue
            assert topic is not None, "it was checked"
            record = _proposed(image, topic, partition, allowed(topic.name))
            if record is not None:
                records[key] = record
            partitions.append(_answered(partition.partition_index, state, record, request.broker_id))
        topics.append(ResponseTopicData(asked.topic_id, partitions))
    return Decision(AlterPartitionResponse(topics=topics), tuple(records.values()))


def _checked(
    image: MetadataImage, topic: TopicImage | None, request: RequestPartitionData, leader: int
) -> PartitionState:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= request.partition_index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = topic.partitions[request.partition_index]
    if request.leader_epoch > state.leader_epoch or request.partition_epoch > state.partition_epoch:
        # The leader knows more than we do: somebody else has become the controller.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if request.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader != state.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.partition_epoch < state.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    _check_isr(image, state, request)
    return state


def _check_isr(image: MetadataImage, state: PartitionState, request: RequestPartitionData) -> None:
    isr = [member.broker_id for member in _members(request)]
    if len(set(isr)) < len(isr) or not set(isr) <= set(state.replicas) or state.leader not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.leader_recovery_state == RECOVERING and (len(isr) > 1 or state.leader_recovery_state == RECOVERED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    for member in _members(request):
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.is_active or member.broker_epoch not in (ANY_EPOCH, broker.epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _members(request: RequestPartitionData) -> Sequence[BrokerState]:
    return request.new_isr_with_epochs or [BrokerState(broker_id, ANY_EPOCH) for broker_id in request.new_isr]


def _proposed(
    image: MetadataImage, topic: TopicImage, request: RequestPartitionData, is_unclean_allowed: bool
) -> PartitionChangeRecord | None:
    wanted = Wanted(
        isr=[member.broker_id for member in _members(request)],
        recovery_state=request.leader_recovery_state,
        election=Election.UNCLEAN if is_unclean_allowed else Election.ONLINE,
    )
    return change(image, topic, request.partition_index, wanted, active_in(image))


def _answered(
    index: int, state: PartitionState, record: PartitionChangeRecord | None, leader: int
) -> ResponsePartitionData:
    if record is not None and record.leader not in (LEADER_UNCHANGED, leader):
        # The end of a reassignment takes the leadership from a leader that goes: it learns it with the next metadata.
        return ResponsePartitionData(index, ErrorCode.NEW_LEADER_ELECTED)
    after = state if record is None else changed_partition(state, record)
    return ResponsePartitionData(
        partition_index=index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )
