"""Elections on request (ElectLeaders v0–2), and those that return leaderships to the preferred leaders.

A preferred election makes the first replica the leader if it is in sync. An unclean one makes any active replica the
leader if none of the ISR is active: acknowledged records may be lost, so the request has to name this type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.partition_change import DesiredState, Election, active_in, change_record
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.controller.views import refuse_view
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import NO_LEADER
from moldau.wire.log_records.metadata import PartitionChangeRecord
from moldau.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ELECTIONS_MAX: Final = 1000
"""Elections in one round that runs without a request; the next round continues with the rest."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def decide_elect_leaders(image: MetadataImage, request: ElectLeadersRequest) -> Steps[Decision[ElectLeadersResponse]]:
    """Elect leaders of the named partitions. If the request names none, all are meant, and the response omits those
    that need no election."""
    requested: list[tuple[str, Sequence[int]]] = (
        [(name, range(len(image.topics[name].partitions))) for name in sorted(image.topics) if name not in image.views]
        if request.topic_partitions is None
        else [(each.topic, each.partitions) for each in request.topic_partitions]
    )
    records: dict[tuple[str, int], PartitionChangeRecord] = {}
    results: list[ReplicaElectionResult] = []
    turn = TurnItems(ITEMS_A_TURN)
    for name, indexes in requested:
        if turn.ends_after(1):
            yield
        partitions: list[PartitionResult] = []
        for index in indexes:
            if turn.ends_after(1):
                yield
            try:
                records[name, index] = _election_record(image, name, index, request.election_type)
                partitions.append(PartitionResult(index, 0, None))
            except KafkaError as refused:
                if request.topic_partitions is not None or refused.code != ErrorCode.ELECTION_NOT_NEEDED:
                    partitions.append(PartitionResult(index, refused.code, refused.message))
        results.append(ReplicaElectionResult(name, partitions))
    is_valid = request.election_type in set(ElectionType)
    error_code = ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST
    return Decision(ElectLeadersResponse(0, error_code, results), tuple(records.values()))


def _election_record(image: MetadataImage, name: str, index: int, kind: int) -> PartitionChangeRecord:
    if kind not in set(ElectionType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    refuse_view(image, topic)
    state = topic.partitions[index]
    is_preferred = kind == ElectionType.PREFERRED
    is_settled = _has_preferred_leader(state) if is_preferred else state.leader != NO_LEADER
    if is_settled:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    election = Election.PREFERRED if is_preferred else Election.UNCLEAN
    record = change_record(image, topic, index, DesiredState(election=election), active_in(image))
    if record is None and is_preferred:
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    if record is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    return record


def decide_balance(image: MetadataImage) -> Steps[Decision[bool]]:
    """Elect the preferred replicas that do not lead. The response is True if more partitions may be left."""
    return _elect_round(image, lambda _, state: not _has_preferred_leader(state), Election.PREFERRED)


def decide_unclean_elections(image: MetadataImage, broker_configs: BrokerLayers) -> Steps[Decision[bool]]:
    """Elect leaders of partitions without one, where unclean elections are allowed. The response is True if more may be
    left."""
    allowed = unclean_allowed(image, broker_configs)
    return _elect_round(image, lambda topic, state: state.leader == NO_LEADER and allowed(topic.name), Election.UNCLEAN)


def _elect_round(
    image: MetadataImage, needs_election: Callable[[TopicImage, PartitionState], bool], election: Election
) -> Steps[Decision[bool]]:
    active = active_in(image)
    records: list[PartitionChangeRecord] = []
    turn = TurnItems(ITEMS_A_TURN)
    for topic, index, state in _all_partitions(image):
        if turn.ends_after(1):
            yield
        if not needs_election(topic, state):
            continue
        if len(records) == ELECTIONS_MAX:
            return Decision(True, tuple(records))
        record = change_record(image, topic, index, DesiredState(election=election), active)
        if record is not None:
            records.append(record)
    return Decision(False, tuple(records))


def _all_partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionState]]:
    for name in sorted(image.topics):
        topic = image.topics[name]
        if topic.is_view:
            continue
        for index, state in enumerate(topic.partitions):
            yield topic, index, state


def _has_preferred_leader(state: PartitionState) -> bool:
    return state.leader == state.replicas[0]
