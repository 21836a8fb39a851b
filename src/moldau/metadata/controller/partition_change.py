"""How a partition gets from the state it is in to the one that is wanted: the one place where leaders are elected.

Whoever wants something of a partition (another ISR, other replicas, another leader) says it as a `Wanted`; what comes
out is one record with all that follows from it, or none. A leader is taken from the ISR, in the order of the replicas;
from outside of it only where an unclean election is allowed. The ISR is never empty: its last member stays in it,
dead or not, because nobody else is known to have every acknowledged record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from moldau.base.ids import Uuid
from moldau.metadata.image import RECOVERING, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERY_STATE_UNCHANGED,
    PartitionChangeRecord,
)

Active = Callable[[int], bool]
"""Whether a broker may lead and be in sync: it is there, unfenced, and not about to stop."""


class Election(Enum):
    ONLINE = auto()
    """The leader stays if it can; otherwise another one of the ISR."""
    PREFERRED = auto()
    """The first replica if it is in the ISR; otherwise as ONLINE."""
    UNCLEAN = auto()
    """As ONLINE, and if there is nobody in the ISR, any replica that lives."""


@dataclass(slots=True)
class Wanted:
    """What a partition shall be; what is None stays as it is."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovery_state: int | None = None
    election: Election = Election.ONLINE


def active_in(image: MetadataImage) -> Active:
    brokers = image.brokers

    def active(broker_id: int) -> bool:
        broker = brokers.get(broker_id)
        return broker is not None and broker.is_active

    return active


def change(
    image: MetadataImage, topic: TopicImage, index: int, wanted: Wanted, active: Active
) -> PartitionChangeRecord | None:
    """The record that makes it so; None if it is so already."""
    old = topic.partitions[index]
    replicas = tuple(old.replicas if wanted.replicas is None else wanted.replicas)
    removing = tuple(old.removing_replicas if wanted.removing is None else wanted.removing)
    adding = tuple(old.adding_replicas if wanted.adding is None else wanted.adding)
    isr = tuple(old.isr if wanted.isr is None else wanted.isr)
    completed = _completed(replicas, isr, removing, adding)
    if completed is not None:
        replicas, isr = completed
        removing = adding = ()
    leader, unclean = _elect(image, old, replicas, isr, wanted.election, active)
    recovery_state = old.leader_recovery_state if wanted.recovery_state is None else wanted.recovery_state
    if unclean:
        # Only the new leader's log counts from now on, whatever the others had.
        isr, recovery_state = (leader,), RECOVERING
    assert isr, "whoever wants an ISR names one who stays in it"
    # A replica that goes must stop to fetch as a follower of this epoch, so the epoch ends with it.
    is_new_epoch = leader != old.leader or not set(old.replicas) <= set(replicas)
    arrived = (leader,) if unclean else [replica for replica in isr if replica not in old.isr]
    directories = _directories(image, old, replicas, arrived)
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.id,
        isr=isr if isr != old.isr else None,
        leader=leader if is_new_epoch else LEADER_UNCHANGED,
        replicas=replicas if replicas != old.replicas else None,
        removing_replicas=removing if removing != old.removing_replicas else None,
        adding_replicas=adding if adding != old.adding_replicas else None,
        leader_recovery_state=recovery_state
        if recovery_state != old.leader_recovery_state
        else RECOVERY_STATE_UNCHANGED,
        directories=directories if directories != old.directories else None,
    )
    return None if _says_nothing(record) else record


def _completed(
    replicas: tuple[int, ...], isr: tuple[int, ...], removing: tuple[int, ...], adding: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The replicas and ISR with which a reassignment ends, as soon as nothing is lost by ending it."""
    if not removing and not adding:
        return None
    target = tuple(replica for replica in replicas if replica not in removing)
    in_sync = tuple(replica for replica in isr if replica not in removing)
    if not target or not in_sync or not set(adding) <= set(in_sync):
        return None
    # With fewer replicas than before, all that stay must be in sync: otherwise the ISR would shrink for nothing.
    if len(adding) < len(removing) and not set(target) <= set(in_sync):
        return None
    return target, in_sync


def _elect(
    image: MetadataImage,
    old: PartitionState,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    election: Election,
    active: Active,
) -> tuple[int, bool]:
    """Who leads, and whether the election was unclean."""

    def may_lead(replica: int) -> bool:
        return replica in isr and active(replica) and _has_its_log(image, old, replica)

    if election is Election.PREFERRED and may_lead(replicas[0]):
        return replicas[0], False
    if old.leader in replicas and may_lead(old.leader):
        return old.leader, False
    for replica in replicas:
        if may_lead(replica):
            return replica, False
    if election is Election.UNCLEAN:
        alive = [replica for replica in replicas if active(replica)]
        # An empty disk is the worst of all choices, but still one that somebody made.
        with_a_log = [replica for replica in alive if _has_its_log(image, old, replica)]
        if alive:
            return (with_a_log or alive)[0], True
    return NO_LEADER, False


def _has_its_log(image: MetadataImage, old: PartitionState, replica: int) -> bool:
    """Not so for a broker that came back with other disks than those on which it was in sync."""
    broker = image.brokers.get(replica)
    return broker is not None and broker.has_directory(old.directory_of(replica))


def _directories(
    image: MetadataImage, old: PartitionState, replicas: tuple[int, ...], arrived: Collection[int]
) -> tuple[Uuid, ...]:
    """Where each replica lies. What arrived on a broker whose old directory is gone lies where new replicas do."""
    if replicas == old.replicas and not arrived:
        return old.directories
    directories = []
    for replica in replicas:
        broker, directory = image.brokers.get(replica), old.directory_of(replica)
        is_new = replica not in old.replicas
        if broker is not None and (is_new or (replica in arrived and not broker.has_directory(directory))):
            directory = broker.default_directory
        directories.append(directory)
    return tuple(directories)


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == LEADER_UNCHANGED
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        and record.directories is None
    )
