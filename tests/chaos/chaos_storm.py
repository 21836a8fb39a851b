"""The order in which faults come: rounds of a random kind, and after each everybody has to make progress.

A storm is many faults that overlap. A siege is one fault of one node, which lasts until all producers make progress in
spite of it: three nodes have to survive one. (Consumers of a leader that is cut off may have to wait for the end, as
with Kafka: it has nothing new for them, and does not know that another one leads.) In a round of damage all nodes are
killed and the logs of one of them are damaged. Whatever goes wrong is noted, and the run continues.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from chaos_chronicle import Chronicle
from chaos_clients import READERS, WRITERS, Clients, Where
from chaos_damage import KINDS, damage
from chaos_faults import FAULTS, Nemesis
from chaos_nodes import Cluster, Node, are_in_sync
from harness.patience import PATIENCE_S, Patience

STORM_KINDS = [
    "kill", "stop", "pause", "disconnected", "receives nothing", "sends nothing", "one link cut", "one direction cut",
    "isolated", "without clients", "alone with clients", "connections break", "slow network", "hanging connections",
    "late requests", "full disk", "disk fills up", "clock is set",
]  # fmt: skip
SIEGE_KINDS = ["disconnected", "isolated", "kill", "stop", "pause"]
"""Faults of one node which the other two have to compensate."""
MILD_KINDS = ["slow network", "late requests", "clock is set", "connections break"]
"""Faults that may last while nodes are started."""
AT_ONCE_MAX = 4
DAMAGE, KILL_ALL, KILL_CLIENT = "damage", "kill all", "kill client"
ALL_KINDS = [*STORM_KINDS, DAMAGE, KILL_ALL, KILL_CLIENT]


class Storm:
    def __init__(
        self, cluster: Cluster, clients: Clients, chronicle: Chronicle, rng: random.Random, kinds: list[str]
    ) -> None:
        self._cluster, self._clients, self._chronicle, self._rng = cluster, clients, chronicle, rng
        self._nemesis = Nemesis(cluster, rng)
        self._nemesis.counts = chronicle.faults
        self._kinds = kinds
        self._ends_s: dict[tuple[str, int], float] = {}
        """When a fault of a kind and node is to end."""

    def begin(self) -> None:
        """Wait until all clients work."""
        self._await_progress(time.monotonic(), "before the first fault")

    def run(self, seconds: float) -> None:
        end_s, rounds = time.monotonic() + seconds, self._rounds()
        while time.monotonic() < end_s:
            if not rounds:
                rounds = self._rounds()
            rounds.pop()()
            self._calm()

    def _rounds(self) -> list[Callable[[], None]]:
        """Return a few rounds of each kind, in random order."""
        sieges = [kind for kind in SIEGE_KINDS if kind in self._kinds]
        found: list[Callable[[], None]] = []
        for kind in sieges[:1] + self._rng.sample(sieges[1:], min(1, len(sieges[1:]))):
            found.append(lambda kind=kind: self._siege(kind))  # type: ignore[misc]
        if DAMAGE in self._kinds:
            found.append(self._damage)
        if KILL_ALL in self._kinds:
            found.append(self._kill_all)
        found += [self._storm] * (3 if set(STORM_KINDS) & set(self._kinds) else 0)
        assert found, f"no round has only these faults: {self._kinds}"
        self._rng.shuffle(found)
        return found

    # --- rounds ---------------------------------------------------------------------------------------------------

    def _storm(self) -> None:
        self._chronicle.note("a storm begins")
        until_s = time.monotonic() + self._rng.uniform(8, 40)
        while (now_s := time.monotonic()) < until_s:
            self._end_due(now_s)
            if len(self._nemesis.on) < AT_ONCE_MAX:
                self._begin_any()
            self.sleep(self._rng.uniform(0.2, 2.5))
        self._end_due(float("inf"))

    def _begin_any(self) -> None:
        kinds = [kind for kind in self._kinds if kind in FAULTS or kind == KILL_CLIENT]
        kind = self._rng.choice(kinds)
        if kind == KILL_CLIENT:
            self._kill_client()
            return
        node = self._rng.choice(self._cluster.brokers)
        if self._rng.random() < 0.3:  # of the active controller, more often than of others
            node = self._cluster.controller() or node
        if self._nemesis.can_begin(kind, node):
            self._begin(kind, node)
            self._ends_s[kind, node.id] = time.monotonic() + self._rng.choice([1, 5]) * self._rng.uniform(0.5, 4)

    def _siege(self, kind: str) -> None:
        node = self._rng.choice([self._cluster.controller() or self._cluster.nodes[1], *self._cluster.brokers])
        since_s = time.monotonic()
        self._begin(kind, node)
        self._await_progress(since_s, f"while node {node.id} has the fault: {kind}", WRITERS)
        self.sleep(self._rng.uniform(0, 10))
        self._end_due(float("inf"))

    def _kill_all(self) -> None:
        self._chronicle.note("all nodes are killed")
        self._chronicle.faults[KILL_ALL] += 1
        self._kill_rest()
        self._start_all(self._rng.sample(self._cluster.brokers, len(self._cluster.brokers)))

    def _damage(self) -> None:
        """Damage the logs of one node while all are down, if each partition has another replica in sync."""
        node = self._rng.choice(self._cluster.brokers)
        self.await_in_sync()  # so that no other node is damaged still
        if self._rng.random() < 0.5:
            other = self._rng.choice([each for each in self._cluster.brokers if each is not node])
            since_s = time.monotonic()
            self._begin("kill", other)
            self._await_progress(since_s, f"while node {other.id} is killed", WRITERS)
        self.sleep(0.5)
        partitions = self._cluster.all_partitions()
        if not partitions or not all(set(each.isrs) - {node.id} for each in partitions):
            self._chronicle.note(f"node {node.id} is not damaged: it is the only one in sync somewhere")
            self._end_due(float("inf"))
            return
        self._kill_rest()
        kind = self._rng.choice(list(KINDS))
        names = damage(node.data, kind, self._rng)
        self._chronicle.faults[f"{DAMAGE}: {kind}"] += 1
        self._chronicle.note(f"all nodes are killed; node {node.id}, {kind}: {', '.join(names)}")
        if self._rng.random() < 0.5 and (mild := [kind for kind in MILD_KINDS if kind in self._kinds]):
            kind = self._rng.choice(mild)
            if self._nemesis.can_begin(kind, node):
                self._begin(kind, node)
        order = self._rng.sample(self._cluster.brokers, len(self._cluster.brokers))
        if self._rng.random() < 0.5:
            order = [node, *(each for each in order if each is not node)]
        self._start_all(order)

    def _kill_rest(self) -> None:
        self.watch()
        for node in self._cluster.brokers:
            if node.process is not None:
                node.kill()

    def _start_all(self, order: list[Node]) -> None:
        for node in order:
            if node.process is None:
                self._chronicle.note(f"node {node.id} is started")
                node.start()
            self.sleep(self._rng.choice([0.0, self._rng.uniform(0, 8)]))
        self._end_due(float("inf"))

    def _kill_client(self) -> None:
        name = self._rng.choice(list(self._clients.all))
        self._chronicle.note(f"client {name} is killed and started")
        self._chronicle.faults[KILL_CLIENT] += 1
        self._clients.kill_and_start(name)

    # --- parts of a round -----------------------------------------------------------------------------------------

    def _begin(self, kind: str, node: Node) -> None:
        self.watch()
        self._chronicle.note(f"begin: {kind}, node {node.id}")
        self._nemesis.begin(kind, node)

    def _end_due(self, now_s: float) -> None:
        for kind, node in list(self._nemesis.on):
            if self._ends_s.get((kind, node.id), 0.0) <= now_s:
                self._chronicle.note(f"end: {kind}, node {node.id}")
                self._nemesis.end(kind, node)

    def _calm(self) -> None:
        self._end_due(float("inf"))
        self._chronicle.note("calm")
        self._await_progress(time.monotonic(), "after all faults")

    def _await_progress(self, since_s: float, when: str, roles: Collection[str] = (*WRITERS, *READERS)) -> None:
        """Wait until every client gets something through in every partition, as long as there is progress."""
        lacks, last_change_s = self._clients.stuck(since_s, roles), time.monotonic()
        while lacks:
            self.sleep(0.2)
            before, lacks = lacks, self._clients.stuck(since_s, roles)
            if lacks != before:
                last_change_s = time.monotonic()
            if time.monotonic() - last_change_s > PATIENCE_S:
                self._chronicle.anomaly(f"stuck: no progress for {PATIENCE_S:g} s {when}: {lacks}")
                self._chronicle.note(f"where the logs end: {self._cluster.ends()}")
                self._restart(lacks)
                return
        self._chronicle.note(f"all make progress {when}, {time.monotonic() - since_s:.1f} s after it began")

    def _restart(self, names: Iterable[str]) -> None:
        """Start stuck clients again, so that the run can continue."""
        for name in self._clients.all:
            if self._clients.unit(name) in names:
                self._clients.restart_stuck(name)

    def await_in_sync(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        until_s = time.monotonic() + PATIENCE_S
        while not are_in_sync(self._cluster.all_partitions()):
            self.sleep(0.2)
            if time.monotonic() > until_s:
                partitions = [each for each in self._cluster.all_partitions() if not are_in_sync([each])]
                states = [f"{each.id} led by {each.leader}, in sync {each.isrs}" for each in partitions]
                self._chronicle.anomaly(f"stuck: not all replicas are in sync after all faults: {states[:10]}")
                return

    def await_readers(self, last: Mapping[Where, int]) -> None:
        """Wait until every group and reader has read each partition to its end, as long as there is progress."""
        patience = Patience("all groups and readers have read everything")
        while lacks := self._clients.unread(last):
            try:
                patience.check(lacks)
            except AssertionError as error:
                self._chronicle.anomaly(f"stuck: {error}: {lacks}")
                return
            self.sleep(0.2)

    def sleep(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        self.watch()
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(0.3, left_s))
            self.watch()

    def watch(self) -> None:
        """Note nodes and clients that ended by themselves, and start them again."""
        for node in self._cluster.brokers:
            node.measure()
            while node.complaints:
                self._chronicle.anomaly(f"exit: {node.complaints.pop()}")
            if node.process is not None and not node.is_stopping and (status := node.process.poll()) is not None:
                self._chronicle.anomaly(f"exit: node {node.id} ended by itself with {status}: {node.output_tail()}")
                node.process, node.is_paused = None, False
                node.start()
        for fault in self._clients.crashed():
            self._chronicle.anomaly(fault)
