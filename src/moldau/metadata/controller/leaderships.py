"""The changes of all partitions when brokers leave or return, or can no longer write: who leaves which ISR, and who
leads instead.

Each function scans all partitions once and sorts the result by topic name, so that it does not depend on the order of
a map. Thousands of partitions are in the same state: the change of each distinct state is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from moldau.base.config_def import BrokerLayers
from moldau.metadata.controller.min_insync import min_insync_replicas
from moldau.metadata.controller.partition_change import (
    Active,
    DesiredState,
    Election,
    active_in,
    change_record,
    has_log,
    writable_isr,
)
from moldau.metadata.controller.unclean_elections import unclean_allowed
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import NO_LEADER
from moldau.wire.log_records.metadata import PartitionChangeRecord

TopicPartitions = tuple[TopicImage, list[int]]
"""A topic, and the indexes of some of its partitions."""


def leave_changes(
    image: MetadataImage,
    gone: Collection[int],
    broker_configs: BrokerLayers,
    is_alive: Callable[[int], bool] = lambda _: True,
) -> list[PartitionChangeRecord]:
    """Remove these brokers from every ISR that has other members of which one is alive, and from all leaderships."""
    gone = frozenset(gone)
    is_active = active_in(image)
    affected = _find_partitions(image, lambda state: not gone.isdisjoint(state.isr))
    return _change_records(
        image,
        affected,
        lambda _, state: _remaining_isr(state, gone, is_alive),
        lambda id: id not in gone and is_active(id),
        broker_configs,
    )


def confirm_changes(image: MetadataImage, broker_id: int, broker_configs: BrokerLayers) -> list[PartitionChangeRecord]:
    """Remove brokers that are fenced or shutting down from the ISRs of partitions that this one leads. It is alive, and
    stays in them."""
    if all(broker.is_active for broker in image.brokers.values()):
        return []
    is_active = active_in(image)

    def live_isr(_: TopicImage, state: PartitionState) -> tuple[int, ...]:
        return tuple(replica for replica in state.isr if replica == broker_id or is_active(replica))

    affected = _find_partitions(image, lambda state: state.leader == broker_id and not all(map(is_active, state.isr)))
    return _change_records(image, affected, live_isr, is_active, broker_configs)


def step_down_changes(
    image: MetadataImage, broker_id: int, broker_configs: BrokerLayers
) -> list[PartitionChangeRecord]:
    """Move the leaderships of this broker. It lost no records, so it stays in its ISRs."""
    is_active = active_in(image)
    affected = _find_partitions(image, lambda state: state.leader == broker_id)
    return _change_records(
        image, affected, lambda _, state: state.isr, lambda id: id != broker_id and is_active(id), broker_configs
    )


def unfence_changes(image: MetadataImage, broker_id: int, broker_configs: BrokerLayers) -> list[PartitionChangeRecord]:
    """Elect leaders of partitions without one, where this broker, which is being unfenced, makes that possible. Members
    of the ISR that are still fenced leave it: the new leader must not wait for them."""
    is_active = active_in(image)

    def is_live(id: int) -> bool:
        return id == broker_id or is_active(id)

    def live_isr(state: PartitionState) -> tuple[int, ...]:
        live = tuple(replica for replica in state.isr if is_live(replica) and has_log(image, state, replica))
        return live or state.isr

    affected = _find_partitions(image, lambda state: state.leader == NO_LEADER)
    return _change_records(image, affected, lambda _, state: live_isr(state), is_live, broker_configs)


def writability_changes(
    image: MetadataImage, broker_id: int, broker_configs: BrokerLayers
) -> list[PartitionChangeRecord]:
    """Change the ISRs and leaders where it matters whether this broker can write; the image has the new state. One
    that no longer can leaves, one that can again replaces members that cannot."""
    min_insync = min_insync_replicas(image, broker_configs)
    affected = _find_partitions(image, lambda state: broker_id in state.isr)
    return _change_records(
        image,
        affected,
        lambda topic, state: writable_isr(image, state, state.isr, min_insync(topic.name)),
        active_in(image),
        broker_configs,
    )


def lost_directory_changes(
    image: MetadataImage, broker_id: int, directories: Collection[bytes], broker_configs: BrokerLayers
) -> list[PartitionChangeRecord]:
    """Remove the broker from the ISRs and leaderships of the replicas that were in these lost directories."""
    is_active = active_in(image)
    gone = frozenset([broker_id])
    affected = _find_partitions(
        image, lambda state: broker_id in state.isr and state.directory_of(broker_id) in directories
    )
    return _change_records(
        image,
        affected,
        lambda _, state: _remaining_isr(state, gone),
        lambda id: id not in gone and is_active(id),
        broker_configs,
    )


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(state.leader == broker_id for topic in image.topics.values() for state in topic.partitions)


def _remaining_isr(
    state: PartitionState, gone: frozenset[int], is_alive: Callable[[int], bool] = lambda _: True
) -> tuple[int, ...]:
    """Return the ISR without the brokers that are gone. If nobody else is alive, all stay: each has every acknowledged
    record, and nobody is there to acknowledge more. The one that is elected when it returns may be any whose log is
    complete."""
    remaining = tuple(replica for replica in state.isr if replica not in gone)
    return remaining if any(map(is_alive, remaining)) else state.isr


def _find_partitions(image: MetadataImage, matches: Callable[[PartitionState], bool]) -> list[TopicPartitions]:
    result: list[TopicPartitions] = []
    for topic in image.topics.values():
        if topic.is_view:
            continue
        indexes = [index for index, state in enumerate(topic.partitions) if matches(state)]
        if indexes:
            result.append((topic, indexes))
    return sorted(result, key=lambda entry: entry[0].name)


def _change_records(
    image: MetadataImage,
    affected: list[TopicPartitions],
    isr: Callable[[TopicImage, PartitionState], tuple[int, ...]],
    active: Active,
    broker_configs: BrokerLayers,
) -> list[PartitionChangeRecord]:
    allowed = unclean_allowed(image, broker_configs)
    computed: dict[object, PartitionChangeRecord | None] = {}
    records: list[PartitionChangeRecord] = []
    for topic, indexes in affected:
        election = Election.UNCLEAN if allowed(topic.name) else Election.ONLINE
        for index in indexes:
            state = topic.partitions[index]
            new_isr = isr(topic, state)
            key = (
                new_isr,
                state.replicas,
                state.isr,
                state.leader,
                state.removing_replicas,
                state.adding_replicas,
                state.directories,
                state.leader_recovery_state,
                election,
            )
            if key in computed:
                record = computed[key]
            else:
                desired = DesiredState(isr=new_isr, election=election)
                record = computed[key] = change_record(image, topic, index, desired, active)
            if record is not None:
                records.append(_copy_for(record, topic, index))
    return records


def _copy_for(record: PartitionChangeRecord, topic: TopicImage, index: int) -> PartitionChangeRecord:
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
