"""A cluster with the outages that operators report: a node that its peers do not reach but clients do, and the node
that took over from it dies; logs damaged while all nodes were down; disks that are full for long.

Its clients include such as would notice it: consumers that start again and again and rely on any broker's word, clients
that ask one broker for metadata for as long as it answers, and producers that raise their epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from machines.world import TAIL

from cluster.bumping import Bases, BumpingLedger, BumpingProducer
from cluster.client import NO_NODE
from cluster.outages import OutageFaults
from cluster.returning import ReturningConsumer
from cluster.world import SMALL, ClusterWorld, Size

RETURNING = 4
BUMPING = 3
STICKY_SHARE = 0.5


class Mode(NamedTuple):
    outages: tuple[str, ...]
    only_outages: bool
    """Whether there are no other faults."""
    kills_successors: bool


MODES = (
    Mode(("cut off",), only_outages=True, kills_successors=False),
    Mode(("cut off",), only_outages=False, kills_successors=True),
    Mode(("cut off",), only_outages=True, kills_successors=True),
    Mode(("damage", "full"), only_outages=False, kills_successors=False),
    Mode(("damage",), only_outages=True, kills_successors=False),
    Mode(("full",), only_outages=True, kills_successors=False),
)
"""The mode of each seed, one after the other."""


class OutagesWorld(ClusterWorld):
    kind = "outages"
    answers_early = False

    def __init__(self, seed: int, size: Size = SMALL, tail: int = TAIL) -> None:
        self.outages, self.only_outages, self.kills_successors = MODES[seed % len(MODES)]
        self.returning: list[ReturningConsumer] = []
        self._bases: Bases = {}
        super().__init__(seed, size, tail)

    def new_faults(self, rng: Random) -> OutageFaults:
        return OutageFaults(self, rng)

    def new_ledger(self, topic: str, partition: int) -> BumpingLedger:
        return BumpingLedger(f"{topic}-{partition}", self.violated, self._bases)

    def more_properties(self, rng: Random) -> dict[str, str]:
        # With many shards of groups some have no commit that waits when their coordinator is cut off.
        return {"offsets.topic.num.partitions": "8"}

    def populate(self) -> None:
        super().populate()
        rng = Random(self.client_rng.random())
        for client in (*self.producers, *self.consumers, *self.committers):
            client.is_sticky = rng.random() < STICKY_SHARE
        bumping = [
            BumpingProducer(
                self, f"b{number}", self.topics[0], Random(rng.random()), 2 * self.size.gap_ms, number == 0, self._bases
            )
            for number in range(BUMPING)
        ]
        for number in range(RETURNING):
            name = f"r{number}"
            self.returning.append(
                ReturningConsumer(self, name, self.topics[0], 0, Random(rng.random()), number % 2 == 0)
            )
        self.producers += bumping
        self.clients += [*bumping, *self.returning]

    def progress(self) -> Callable[[], str]:
        """Return a check that from now on every partition, producer, consumer and group that is there makes
        progress; of topics that are never deleted."""
        lasting = self.lasting_topics()
        waiting = [
            (producer, lane, lane.queue[0])
            for producer in self.producers
            if producer.topic in lasting
            for lane in producer.lanes.values()
            if lane.queue
        ]
        ledgers = [
            self.audit.ledger(self.image.topics[name].id, index)
            for name in lasting
            for index in range(len(self.image.topics[name].partitions))
        ]
        acknowledged = {ledger.name: ledger.acknowledged for ledger in ledgers}
        ends = {ledger.name: ledger.end for ledger in ledgers}
        committed = {committer.name: (committer.tries, committer.commits) for committer in self.committers}

        def why_not() -> str:
            for producer, lane, batch in waiting:
                if batch in lane.queue:
                    return f"{producer.name} gets no acknowledgement of {batch.values[0]!r}"
            for ledger in ledgers:
                if ledger.acknowledged <= acknowledged[ledger.name]:
                    return f"nothing new is acknowledged in {ledger.name}"
            for consumer in self.consumers:
                for place in consumer.places.values():
                    # One that reads from the nearest replica stays there while that answers, as with Kafka.
                    is_from_leader = place.replica == NO_NODE
                    if is_from_leader and place.position < ends.get(f"{consumer.topic}-{place.partition}", 0):
                        return f"{consumer.name} has read {place.partition} only up to {place.position}"
            for committer in self.committers:
                tries, commits = committed[committer.name]
                if committer.tries > tries and committer.commits <= commits:
                    return f"{committer.name} commits nothing"
            return ""

        return why_not
