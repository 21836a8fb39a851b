"""The placement of the replicas of new partitions.

Brokers are used in turn, with racks interleaved, and each partition starts one broker later, so that leaders are spread
evenly; its other replicas are the next in turn, from the racks with the fewest replicas so far. The first broker is
random, so that many small topics do not all use the same one. A fenced broker, or one whose disk refuses writes, is
never first; it is used only if a rack or a replica would be missing without it: it catches up later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from random import Random

from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.image import BrokerImage


def place(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, rng: Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, with the preferred leader first."""
    usable = {broker.id: broker for broker in brokers if not broker.in_controlled_shutdown}
    unfenced = [broker for broker in usable.values() if not broker.fenced]
    live = interleave_racks([broker for broker in unfenced if not broker.cannot_write] or unfenced)
    full = interleave_racks([broker for broker in unfenced if broker.id not in live])
    fenced = interleave_racks([broker for broker in usable.values() if broker.fenced])
    if replication_factor > len(usable) or not live:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): "
            + _shortage_reason(replication_factor, len(usable)),
        )
    first = rng.randrange(len(live))
    starts = ((first + delta) % len(live) for delta in range(min(partitions, len(live))))
    rotations = (live[start:] + live[:start] for start in starts)
    replicas = [_choose_replicas(order + full + fenced, usable, replication_factor) for order in rotations]
    return [replicas[partition % len(live)] for partition in range(partitions)]


def _shortage_reason(replication_factor: int, usable: int) -> str:
    if replication_factor <= usable:
        return "All brokers are currently fenced or in controlled shutdown."
    return (
        f"The target replication factor of {replication_factor} cannot be reached because only {usable} broker(s) "
        "are registered."
    )


def _choose_replicas(
    order: Sequence[int], brokers: Mapping[int, BrokerImage], replication_factor: int
) -> tuple[int, ...]:
    """Return the first broker of `order`, then each time the next one from the least used rack, those first that can
    write now."""
    # A rack's nth broker in this order comes when n of its brokers are chosen: so it suffices to sort by n.
    rack_counts: Counter[str | None] = Counter()
    keys: dict[int, tuple[int, bool, bool]] = {}
    for each in order:
        broker = brokers[each]
        keys[each] = (rack_counts[broker.rack], broker.fenced, broker.cannot_write)
        rack_counts[broker.rack] += 1
    return tuple(sorted(order, key=keys.__getitem__)[:replication_factor])


def interleave_racks(brokers: Sequence[BrokerImage]) -> list[int]:
    """Return broker ids in an order in which neighbours are in different racks where possible."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks, key=lambda r: r or "")))
    return [broker for one_of_each in rounds for broker in one_of_each if broker is not None]
