"""What becomes of all partitions when brokers go or come: who leaves which ISR, and who leads instead.

One tight walk over the cluster's partitions; what it finds is told by topic name, so that it does not depend on the
order of a map. Thousands of partitions of a cluster are in the same state: each state is thought through once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from moldau.base.config_def import BrokerLayers
from moldau.metadata.controller.partition_change import Active, Election, Wanted, active_in, change
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import NO_LEADER, PartitionChangeRecord

Place = tuple[TopicImage, list[int]]
"""A topic, and which of its partitions are meant."""


def leaves(image: MetadataImage, gone: Collection[int], broker: BrokerLayers) -> list[PartitionChangeRecord]:
    """These brokers are out of every ISR that has other members, and lead nothing."""
    gone = frozenset(gone)
    is_active = active_in(image)
    found = _find(image, lambda state: not gone.isdisjoint(state.isr))
    return _changes(
        image, found, lambda state: _remaining(state, gone), lambda id: id not in gone and is_active(id), broker
    )


def steps_back(image: MetadataImage, broker_id: int, broker: BrokerLayers) -> list[PartitionChangeRecord]:
    """This broker leads nothing for now, and is in sync as before: what it had, it has."""
    is_active = active_in(image)
    found = _find(image, lambda state: state.leader == broker_id)
    return _changes(image, found, lambda state: state.isr, lambda id: id != broker_id and is_active(id), broker)


def returns(image: MetadataImage, broker_id: int, broker: BrokerLayers) -> list[PartitionChangeRecord]:
    """This broker is unfenced: what has no leader gets one if it can have one now."""
    is_active = active_in(image)
    found = _find(image, lambda state: state.leader == NO_LEADER)
    return _changes(image, found, lambda state: state.isr, lambda id: id == broker_id or is_active(id), broker)


def loses_directories(
    image: MetadataImage, broker_id: int, directories: Collection[bytes], broker: BrokerLayers
) -> list[PartitionChangeRecord]:
    """The broker lives, but these directories of it are gone, and with them the replicas that lay there."""
    is_active = active_in(image)
    gone = frozenset([broker_id])
    found = _find(image, lambda state: broker_id in state.isr and state.directory_of(broker_id) in directories)
    return _changes(
        image, found, lambda state: _remaining(state, gone), lambda id: id not in gone and is_active(id), broker
    )


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(state.leader == broker_id for topic in image.topics.values() for state in topic.partitions)


def _remaining(state: PartitionState, gone: frozenset[int]) -> tuple[int, ...]:
    """The ISR without those who are gone. If all are, one stays: the leader, who has at least what the others have."""
    rest = tuple(replica for replica in state.isr if replica not in gone)
    if rest:
        return rest
    return (state.leader,) if state.leader in state.isr else state.isr[:1]


def _find(image: MetadataImage, meant: Callable[[PartitionState], bool]) -> list[Place]:
    found: list[Place] = []
    for topic in image.topics.values():
        indexes = [index for index, state in enumerate(topic.partitions) if meant(state)]
        if indexes:
            found.append((topic, indexes))
    return sorted(found, key=lambda place: place[0].name)


def _changes(
    image: MetadataImage,
    found: list[Place],
    isr: Callable[[PartitionState], tuple[int, ...]],
    active: Active,
    broker: BrokerLayers,
) -> list[PartitionChangeRecord]:
    allowed = unclean_allowed(image, broker)
    known: dict[object, PartitionChangeRecord | None] = {}
    records: list[PartitionChangeRecord] = []
    for topic, indexes in found:
        election = Election.UNCLEAN if allowed(topic.name) else Election.ONLINE
        for index in indexes:
            state = topic.partitions[index]
            key = (
                state.replicas,
                state.isr,
                state.leader,
                state.removing_replicas,
                state.adding_replicas,
                state.directories,
                state.leader_recovery_state,
                election,
            )
            if key in known:
                record = known[key]
            else:
                record = known[key] = change(image, topic, index, Wanted(isr=isr(state), election=election), active)
            if record is not None:
                records.append(_same_for(record, topic, index))
    return records


def _same_for(record: PartitionChangeRecord, topic: TopicImage, index: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        index,
        topic.id,
        record.isr,
        record.leader,
        record.replicas,
        record.removing_replicas,
        record.adding_replicas,
        record.leader_recovery_state,
        record.directories,
    )
