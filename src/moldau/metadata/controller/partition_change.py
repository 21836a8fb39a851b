"""The change of a partition from its current to a desired state: the only place where leaders are elected.

The caller describes the new ISR, replicas or leader as a `DesiredState`; the result is one record with all
consequences, or none. The leader is the first active replica that is in the ISR; one outside of the ISR only if an
unclean election is allowed. The ISR is never empty: its last member stays in it, alive or not, and so do its last
members if they go at the same time, because no other replica is known to have every acknowledged record. Of several
that may lead, one that can write to its disk is preferred.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from moldau.base.ids import Uuid
from moldau.metadata.image import RECOVERING, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import LEADER_UNCHANGED, NO_LEADER, RECOVERY_STATE_UNCHANGED
from moldau.wire.log_records.metadata import PartitionChangeRecord

Active = Callable[[int], bool]
"""Whether a broker may lead and be in sync: it is registered, unfenced, and not in controlled shutdown."""


class Election(Enum):
    ONLINE = auto()
    """The leader stays if it can; otherwise another member of the ISR leads."""
    PREFERRED = auto()
    """The first replica if it is in the ISR; otherwise as ONLINE."""
    UNCLEAN = auto()
    """As ONLINE, and if no member of the ISR is active, any active replica."""


@dataclass(slots=True)
class DesiredState:
    """The desired state of a partition; fields that are None stay unchanged."""

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


def writable_isr(
    image: MetadataImage, state: PartitionState, isr: Sequence[int], min_insync_replicas: int
) -> tuple[int, ...]:
    """Return the ISR without brokers whose disks refuse writes: acknowledgements would wait for them.

    A leader that cannot write stays, and the others with it, unless so many others can that acks=all is accepted from
    them. Otherwise nothing would be gained, and a new leader could not commit the last records of its log.
    """
    remaining = tuple(replica for replica in isr if _can_write(image, replica))
    if len(remaining) == len(isr):
        return remaining
    active = active_in(image)
    able = [replica for replica in remaining if active(replica) and has_log(image, state, replica)]
    needed = 1 if state.leader in remaining else min(min_insync_replicas, len(state.replicas))
    return remaining if len(able) >= needed else tuple(isr)


def change_record(
    image: MetadataImage, topic: TopicImage, index: int, desired: DesiredState, active: Active
) -> PartitionChangeRecord | None:
    """Return the record that brings the partition into the desired state; None if nothing changes."""
    old = topic.partitions[index]
    replicas = tuple(old.replicas if desired.replicas is None else desired.replicas)
    removing = tuple(old.removing_replicas if desired.removing is None else desired.removing)
    adding = tuple(old.adding_replicas if desired.adding is None else desired.adding)
    isr = tuple(old.isr if desired.isr is None else desired.isr)
    completed = _complete_reassignment(replicas, isr, removing, adding)
    if completed is not None:
        replicas, isr = completed
        removing = adding = ()
    leader, is_unclean = _elect(image, old, replicas, isr, desired.election, active)
    recovery_state = old.leader_recovery_state if desired.recovery_state is None else desired.recovery_state
    if is_unclean:
        # From now on only the new leader's log counts, whatever the other replicas had.
        isr, recovery_state = (leader,), RECOVERING
    assert isr, "the desired ISR has at least one member"
    # A removed replica must stop fetching as a follower of this epoch, so a new epoch begins.
    is_new_epoch = leader != old.leader or not set(old.replicas) <= set(replicas)
    joining = (leader,) if is_unclean else [replica for replica in isr if replica not in old.isr]
    directories = _directories(image, old, replicas, joining)
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
    return None if _is_empty(record) else record


def _complete_reassignment(
    replicas: tuple[int, ...], isr: tuple[int, ...], removing: tuple[int, ...], adding: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the replicas and the ISR after a reassignment, as soon as it can be completed safely; None until then."""
    if not removing and not adding:
        return None
    target = tuple(replica for replica in replicas if replica not in removing)
    in_sync = tuple(replica for replica in isr if replica not in removing)
    if not target or not in_sync or not set(adding) <= set(in_sync):
        return None
    # With fewer replicas than before, all remaining ones must be in sync: otherwise the ISR would shrink too far.
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
    """Return the leader, and whether the election was unclean."""

    def may_lead(replica: int) -> bool:
        return replica in isr and active(replica) and has_log(image, old, replica)

    if election is Election.PREFERRED and may_lead(replicas[0]) and _can_write(image, replicas[0]):
        return replicas[0], False
    if old.leader in replicas and may_lead(old.leader):
        return old.leader, False
    if able := [replica for replica in replicas if may_lead(replica)]:
        return _first_writable(image, able), False
    if election is Election.UNCLEAN:
        alive = [replica for replica in replicas if active(replica)]
        # A replica with an empty disk is the last choice, but unclean elections allow it.
        with_log = [replica for replica in alive if has_log(image, old, replica)]
        if alive:
            return _first_writable(image, with_log or alive), True
    return NO_LEADER, False


def _first_writable(image: MetadataImage, replicas: Sequence[int]) -> int:
    """Return the first of these replicas whose broker can write, or the first of all if none can."""
    return next((replica for replica in replicas if _can_write(image, replica)), replicas[0])


def _can_write(image: MetadataImage, replica: int) -> bool:
    broker = image.brokers.get(replica)
    return broker is None or not broker.cannot_write


def has_log(image: MetadataImage, old: PartitionState, replica: int) -> bool:
    """Whether the replica still has its log. A broker that restarted with other disks has lost it."""
    broker = image.brokers.get(replica)
    return broker is not None and broker.has_directory(old.directory_of(replica))


def _directories(
    image: MetadataImage, old: PartitionState, replicas: tuple[int, ...], joining: Collection[int]
) -> tuple[Uuid, ...]:
    """Return each replica's directory. New replicas, and those that joined after their directory was lost, get the
    broker's default directory."""
    if replicas == old.replicas and not joining:
        return old.directories
    directories = []
    for replica in replicas:
        broker, directory = image.brokers.get(replica), old.directory_of(replica)
        is_new = replica not in old.replicas
        if broker is not None and (is_new or (replica in joining and not broker.has_directory(directory))):
            directory = broker.default_directory
        directories.append(directory)
    return tuple(directories)


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == LEADER_UNCHANGED
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        and record.directories is None
    )
