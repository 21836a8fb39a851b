"""AlterPartition v2–3: a leader proposes a new ISR for its partitions. Each partition succeeds or fails alone.
A request may have thousands, when a broker has failed or is back: it is decided in steps.

A proposal must be based on the newest state: its leader epoch and partition epoch must be those of the image. Each
member must be an active broker and (v3) the same incarnation that the leader saw fetching: one that restarted since
then may have lost records (KIP-903). A broker that cannot write does not join the ISR. The proposal that adds the last
new replica to the ISR completes a reassignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHANGES_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.min_insync import min_insync_replicas
from moldau.metadata.controller.partition_change import (
    DesiredState,
    Election,
    active_in,
    change_record,
    writable_isr,
)
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.image import RECOVERED, RECOVERING, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import LEADER_UNCHANGED
from moldau.metadata.states import changed_partition
from moldau.wire.log_records.metadata import PartitionChangeRecord
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

ANY_EPOCH = -1
"""The broker epoch is unknown to the leader: version 2 has none."""


def decide_alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, broker_configs: BrokerLayers
) -> Steps[Decision[AlterPartitionResponse]]:
    sender = image.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    allowed = unclean_allowed(image, broker_configs)
    min_insync = min_insync_replicas(image, broker_configs)
    records: dict[tuple[Uuid, int], PartitionChangeRecord] = {}
    topics: list[ResponseTopicData] = []
    turn = TurnItems(CHANGES_A_TURN)
    for requested_topic in request.topics:
        if turn.ends_after(1):
            yield
        topic = image.topic_by_id(requested_topic.topic_id)
        partitions: list[ResponsePartitionData] = []
        for partition in requested_topic.partitions:
            if turn.ends_after(1):
                yield
            key = (requested_topic.topic_id, partition.partition_index)
            try:
                # A second proposal for a partition in one request is not based on the first.
                if key in records:
                    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
                state = _check_proposal(image, topic, partition, request.broker_id)
            except KafkaError as refused:
                partitions.append(ResponsePartitionData(partition.partition_index, refused.code))
                continue
            assert topic is not None, "_check_proposal refuses unknown topics"
            record = _build_record(image, topic, partition, allowed(topic.name), min_insync(topic.name))
            if record is not None:
                records[key] = record
            partitions.append(_build_response(partition.partition_index, state, record, request.broker_id))
        topics.append(ResponseTopicData(requested_topic.topic_id, partitions))
    return Decision(AlterPartitionResponse(topics=topics), tuple(records.values()))


def _check_proposal(
    image: MetadataImage, topic: TopicImage | None, request: RequestPartitionData, leader: int
) -> PartitionState:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= request.partition_index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = topic.partitions[request.partition_index]
    if request.leader_epoch > state.leader_epoch or request.partition_epoch > state.partition_epoch:
        # The leader has a newer state than this controller, so another controller is active.
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
        if broker.cannot_write and member.broker_id not in state.isr:
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _members(request: RequestPartitionData) -> Sequence[BrokerState]:
    return request.new_isr_with_epochs or [BrokerState(broker_id, ANY_EPOCH) for broker_id in request.new_isr]


def _build_record(
    image: MetadataImage, topic: TopicImage, request: RequestPartitionData, is_unclean_allowed: bool, min_insync: int
) -> PartitionChangeRecord | None:
    state, isr = topic.partitions[request.partition_index], [member.broker_id for member in _members(request)]
    desired = DesiredState(
        isr=writable_isr(image, state, isr, min_insync),
        recovery_state=request.leader_recovery_state,
        election=Election.UNCLEAN if is_unclean_allowed else Election.ONLINE,
    )
    return change_record(image, topic, request.partition_index, desired, active_in(image))


def _build_response(
    index: int, state: PartitionState, record: PartitionChangeRecord | None, leader: int
) -> ResponsePartitionData:
    if record is not None and record.leader not in (LEADER_UNCHANGED, leader):
        # A completed reassignment removed the sender as leader. It learns the new state from the next metadata.
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
