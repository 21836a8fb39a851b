"""What was sent, acknowledged and read while faults were injected, and the anomalies that must never be in it.

The anomalies have the names of Jepsen's Kafka workload. A value names its producer: `producer:number`, where the
numbers of a producer count up in each partition. Everything here is plain data and can be tested by hand.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Place(NamedTuple):
    partition: int
    offset: int


class Value(NamedTuple):
    producer: int
    number: int

    def encode(self) -> bytes:
        return b"%d:%d" % self


def decode(data: bytes) -> Value:
    producer, _, number = data.partition(b":")
    return Value(int(producer), int(number))


class Read(NamedTuple):
    place: Place
    value: Value


@dataclass
class History:
    sent: dict[int, set[Value]] = field(default_factory=lambda: defaultdict(set))
    """By partition."""
    acked: dict[Place, Value] = field(default_factory=dict)
    acked_somewhere: set[tuple[int, Value]] = field(default_factory=set)
    """Partitions and values that were acknowledged without an offset. A broker that restarted knows only the last batch
    of a producer: to the retry of an earlier one it answers, as Kafka does, that it has it, but not where."""
    failed: list[tuple[Value, str]] = field(default_factory=list)
    """Sends that the client reported as failed; they may have been written all the same."""
    polls: dict[str, list[Read]] = field(default_factory=lambda: defaultdict(list))
    """By reader, in the order of arrival; readers keep their position themselves."""
    shared: list[Read] = field(default_factory=list)
    """What group members read: some of it twice after a rebalance, which is legal."""
    final: dict[int, list[Read]] = field(default_factory=lambda: defaultdict(list))
    """The whole log of each partition, read after all faults."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    acks_by_partition: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def acknowledge(self, place: Place, value: Value) -> None:
        with self.lock:
            before = self.acked.setdefault(place, value)
            assert before == value, f"inconsistent offsets: {place} was acknowledged for {before} and for {value}"
            self.acks_by_partition[place.partition] += 1

    def acknowledge_somewhere(self, partition: int, value: Value) -> None:
        with self.lock:
            self.acked_somewhere.add((partition, value))
            self.acks_by_partition[partition] += 1


def anomalies(history: History) -> list[str]:
    """Return descriptions of all anomalies."""
    return [
        *inconsistent_offsets(history),
        *phantoms(history),
        *vanished(history),
        *duplicates(history),
        *lost_writes(history),
        *out_of_order(history),
        *nonmonotonic_polls(history),
        *skipped_polls(history),
        *unseen(history),
    ]


def _everything_read(history: History) -> Iterator[tuple[str, Read]]:
    for reader, reads in history.polls.items():
        yield from ((reader, read) for read in reads)
    yield from (("a group", read) for read in history.shared)
    for reads in history.final.values():
        yield from (("the last reader", read) for read in reads)


def inconsistent_offsets(history: History) -> Iterator[str]:
    """One offset has two values."""
    known = dict(history.acked)
    for reader, (place, value) in _everything_read(history):
        if known.setdefault(place, value) != value:
            yield f"inconsistent offsets: {reader} found {value} at {place}, where {known[place]} was"


def phantoms(history: History) -> Iterator[str]:
    """A value that no producer sent to that partition."""
    for reader, (place, value) in _everything_read(history):
        if value not in history.sent[place.partition]:
            yield f"phantom: {reader} found {value} at {place}, which no producer sent"


def vanished(history: History) -> Iterator[str]:
    """A reader found something that is not in the log at the end."""
    kept = {read.place for reads in history.final.values() for read in reads}
    for reader, (place, value) in _everything_read(history):
        if place not in kept:
            yield f"vanished: {reader} found {value} at {place}, where nothing is at the end"


def duplicates(history: History) -> Iterator[str]:
    """One value at two offsets."""
    where: dict[tuple[int, Value], Place] = {}
    for _, (place, value) in _everything_read(history):
        first = where.setdefault((place.partition, value), place)
        if first != place:
            yield f"duplicate: {value} is at {first} and at {place}"


def lost_writes(history: History) -> Iterator[str]:
    """Acknowledged, but not in the log at the end."""
    kept = {read.place: read.value for reads in history.final.values() for read in reads}
    for place, value in history.acked.items():
        if kept.get(place) != value:
            yield f"lost write: {value} was acknowledged at {place}, where {kept.get(place)} is"
    for partition, value in history.acked_somewhere - {(place.partition, value) for place, value in kept.items()}:
        yield f"lost write: {value} was acknowledged in partition {partition} and is not there"


def out_of_order(history: History) -> Iterator[str]:
    """Records of one producer in one partition are in another order than they were sent."""
    for partition, reads in history.final.items():
        last: dict[int, int] = {}
        for place, value in reads:
            if value.number <= last.get(value.producer, -1):
                yield f"out of order: {value} at {place} of {partition} comes after {last[value.producer]}"
            last[value.producer] = value.number


def nonmonotonic_polls(history: History) -> Iterator[str]:
    """A reader's offsets went back."""
    for reader, reads in history.polls.items():
        last: dict[int, int] = {}
        for place, _ in reads:
            if place.offset <= last.get(place.partition, -1):
                yield f"nonmonotonic poll: {reader} was at {last[place.partition]} and then at {place}"
            last[place.partition] = place.offset


def skipped_polls(history: History) -> Iterator[str]:
    """A reader got a later record without the one before it."""
    offsets = {partition: [read.place.offset for read in reads] for partition, reads in history.final.items()}
    follows = {Place(p, one): Place(p, two) for p, all_of_it in offsets.items() for one, two in pairwise(all_of_it)}
    for reader, reads in history.polls.items():
        by_partition: dict[int, list[Place]] = defaultdict(list)
        for place, _ in reads:
            by_partition[place.partition].append(place)
        for places in by_partition.values():
            for one, two in pairwise(places):
                if two > one and follows.get(one, two) != two:
                    yield f"poll skip: {reader} went from {one} to {two} past {follows[one]}"


def unseen(history: History) -> Iterator[str]:
    """Acknowledged, but never seen by a reader that read to the end."""
    seen = {reader: {read.place for read in reads} for reader, reads in history.polls.items()}
    if history.shared:
        seen["a group"] = {read.place for read in history.shared}
    for reader, places in seen.items():
        missing = sorted(history.acked.keys() - places)
        if missing:
            yield f"unseen: {reader} never saw {len(missing)} of {len(history.acked)}, the first at {missing[0]}"
