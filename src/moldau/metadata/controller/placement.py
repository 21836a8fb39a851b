"""Which brokers hold the replicas of a new partition.

Brokers are taken in turn, racks interleaved, each partition starting one broker further on, so leaders spread evenly;
its other replicas are the next in turn, from racks that have the fewest of them. The first broker is drawn by chance,
so that many small topics do not pile up on the same one. A fenced broker is never first; it is taken where otherwise a
rack, or a replica, would be missing: it catches up when it comes back.
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
    """The replicas of each partition, preferred leader first."""
    usable = {broker.id: broker for broker in brokers if not broker.in_controlled_shutdown}
    live = interleaved([broker for broker in usable.values() if not broker.fenced])
    fenced = interleaved([broker for broker in usable.values() if broker.fenced])
    if replication_factor > len(usable) or not live:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): "
            + _shortage(replication_factor, len(usable)),
        )
    first = rng.randrange(len(live))
    turns = [live[start:] + live[:start] for start in ((first + turn) % len(live) for turn in range(len(live)))]
    placed = [_spread(turn + fenced, usable, replication_factor) for turn in turns[:partitions]]
    return [placed[partition % len(live)] for partition in range(partitions)]


def _shortage(replication_factor: int, usable: int) -> str:
    if replication_factor <= usable:
        return "All brokers are currently fenced or in controlled shutdown."
    return (
        f"The target replication factor of {replication_factor} cannot be reached because only {usable} broker(s) "
        "are registered."
    )


def _spread(turn: Sequence[int], brokers: Mapping[int, BrokerImage], replication_factor: int) -> tuple[int, ...]:
    """The first in turn, then each time the next one of a rack that was used least, and of those one that lives."""
    chosen: list[int] = [turn[0]]
    used: Counter[str | None] = Counter([brokers[turn[0]].rack])
    while len(chosen) < replication_factor:
        broker = min(
            (each for each in turn if each not in chosen),
            key=lambda each: (used[brokers[each].rack], brokers[each].fenced),
        )
        chosen.append(broker)
        used[brokers[broker].rack] += 1
    return tuple(chosen)


def interleaved(brokers: Sequence[BrokerImage]) -> list[int]:
    """Broker ids ordered so that neighbours are in different racks as far as that is possible."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack, []).append(broker.id)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks, key=lambda r: r or "")))
    return [broker for one_of_each in rounds for broker in one_of_each if broker is not None]
