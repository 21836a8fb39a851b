"""Faults of the nodes of a cluster: killed, suspended, disconnected or slow, with a full disk or a wrong clock; and how
they end.

A `Fault` begins on one node and ends again; `FAULTS` has one of each kind by name. Kind, time and node are random, from
a seed. All faults are counted, so that a test can print them. Faults of different kinds or nodes may overlap.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable

from chaos_clocks import why_no_clocks
from chaos_disks import why_no_disks
from chaos_nodes import Cluster, Node
from chaos_proxy import CLIENT, Link, Slowness, between

CLOCK_JUMP_MAX_S = 20 * 60


class Fault(ABC):
    """One kind of fault, on one node at a time."""

    name: str

    @abstractmethod
    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None: ...

    @abstractmethod
    def end(self, cluster: Cluster, node: Node) -> None: ...

    def can_begin(self, cluster: Cluster, node: Node) -> bool:
        return node.is_up

    def why_not_here(self) -> str | None:
        """Return why this machine cannot have such a fault, or None."""
        return None


class Kill(Fault):
    name = "kill"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        node.kill()

    def end(self, cluster: Cluster, node: Node) -> None:
        if node.process is None:
            node.start()


class Stop(Fault):
    """The node is stopped in order, and started again."""

    name = "stop"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        node.begin_to_stop()

    def end(self, cluster: Cluster, node: Node) -> None:
        if node.is_stopping:
            node.await_stop()
        if node.process is None:
            node.start()

    def can_begin(self, cluster: Cluster, node: Node) -> bool:
        return node.is_up and not (node.disk and node.disk.is_full)


class Pause(Fault):
    name = "pause"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        node.pause()

    def end(self, cluster: Cluster, node: Node) -> None:
        if node.is_paused:
            node.resume()


class KillOneNode(Fault):
    """One of the nodes of a machine dies; its supervisor starts it again."""

    name = "kill one node"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        node.kill_one_node(self.index)  # type: ignore[attr-defined]  # a machine of chaos_machines
        self.index += 1

    def end(self, cluster: Cluster, node: Node) -> None:
        """Nothing to do: the supervisor starts the node again."""

    index = 0


class Disconnected(Fault):
    """The node and the others cannot reach each other; clients still reach it, so an old leader still gets requests."""

    name = "disconnected"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        cluster.network.cut(self.links(node.id, [other for other in cluster.nodes if other != node.id]))

    def end(self, cluster: Cluster, node: Node) -> None:
        cluster.network.restore(self.links(node.id, [other for other in cluster.nodes if other != node.id]))

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, others)


class ReceivesNothing(Disconnected):
    """The node does not receive from the others, which receive from it."""

    name = "receives nothing"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return {(other, node) for other in others}


class SendsNothing(Disconnected):
    """The others do not receive from the node, which receives from them."""

    name = "sends nothing"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return {(node, other) for other in others}


class OneLinkCut(Disconnected):
    """The node and one of the others cannot reach each other; the third reaches both."""

    name = "one link cut"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, others[:1])


class OneDirectionCut(Disconnected):
    """One of the others does not receive from the node, which receives from all."""

    name = "one direction cut"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return {(node, others[-1])}


class Isolated(Disconnected):
    """Nobody reaches the node, and it reaches nobody."""

    name = "isolated"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, [*others, CLIENT])


class WithoutClients(Disconnected):
    """Clients do not reach the node; the other nodes do."""

    name = "without clients"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, [CLIENT])


class AloneWithClients(Disconnected):
    """The network is split, and clients are on the side of the node: they do not reach the majority."""

    name = "alone with clients"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, others) | between(CLIENT, others)


class ConnectionsBreak(Fault):
    """All connections of the node are closed at once; new ones are possible."""

    name = "connections break"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        cluster.network.break_connections(between(node.id, [CLIENT, *cluster.nodes]))

    def end(self, cluster: Cluster, node: Node) -> None:
        """Nothing to do: that was one moment."""


class Slow(Fault):
    """All connections are slow, between nodes and of clients, each in its own way."""

    name = "slow network"
    low_s, high_s, share = 0.0, 1.0, 1.0

    def __init__(self) -> None:
        self._on: dict[int, Slowness] = {}

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        links = self.links(node.id, list(cluster.nodes))
        self._on[node.id] = Slowness(links, self.low_s, self.high_s, self.share, random.Random(rng.random()))
        cluster.network.slow_down(self._on[node.id])

    def end(self, cluster: Cluster, node: Node) -> None:
        cluster.network.speed_up(self._on.pop(node.id))

    def links(self, node: int, nodes: list[int]) -> set[Link]:
        everyone = [CLIENT, *nodes]
        return {(one, other) for one in everyone for other in everyone if one != other}


class HangingConnections(Slow):
    """Half of the node's connections hang for longer than some clients wait, and then go on."""

    name = "hanging connections"
    low_s, high_s, share = 5.5, 12.0, 0.5

    def links(self, node: int, nodes: list[int]) -> set[Link]:
        return between(node, [CLIENT, *(other for other in nodes if other != node)])


class LateRequests(Slow):
    """Some requests of clients arrive at the nodes after the client has given up and asked again elsewhere."""

    name = "late requests"
    low_s, high_s, share = 5.5, 12.0, 0.4

    def links(self, node: int, nodes: list[int]) -> set[Link]:
        return {(CLIENT, each) for each in nodes}


class FullDisk(Fault):
    """Not one more page can be written."""

    name = "full disk"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        assert node.disk is not None
        node.disk.fill(self.free_bytes(rng))

    def end(self, cluster: Cluster, node: Node) -> None:
        assert node.disk is not None
        node.disk.empty()

    def free_bytes(self, rng: random.Random) -> int:
        return 0

    def can_begin(self, cluster: Cluster, node: Node) -> bool:
        return node.disk is not None and not node.disk.is_full and not node.is_stopping

    def why_not_here(self) -> str | None:
        return why_no_disks()


class DiskFillsUp(FullDisk):
    """Some more can be written, and then nothing."""

    name = "disk fills up"

    def free_bytes(self, rng: random.Random) -> int:
        return rng.randint(1, 200_000)


class ClockIsSet(Fault):
    """The node's time of day jumps; in the end it jumps back."""

    name = "clock is set"

    def begin(self, cluster: Cluster, node: Node, rng: random.Random) -> None:
        assert node.clock is not None
        node.clock.set(rng.choice([-1, 1]) * rng.randint(1, CLOCK_JUMP_MAX_S))

    def end(self, cluster: Cluster, node: Node) -> None:
        assert node.clock is not None
        node.clock.set(0)

    def can_begin(self, cluster: Cluster, node: Node) -> bool:
        return node.clock is not None and not node.clock.drifts

    def why_not_here(self) -> str | None:
        return why_no_clocks()


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Kill(),
        KillOneNode(),
        Stop(),
        Pause(),
        Disconnected(),
        ReceivesNothing(),
        SendsNothing(),
        OneLinkCut(),
        OneDirectionCut(),
        Isolated(),
        WithoutClients(),
        AloneWithClients(),
        ConnectionsBreak(),
        Slow(),
        HangingConnections(),
        LateRequests(),
        FullDisk(),
        DiskFillsUp(),
        ClockIsSet(),
    )
}


class Nemesis:
    """Begins, ends and counts faults."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.on: list[tuple[str, Node]] = []

    def begin(self, kind: str, node: Node) -> None:
        FAULTS[kind].begin(self.cluster, node, self.rng)
        self.on.append((kind, node))
        self.counts[kind] += 1

    def can_begin(self, kind: str, node: Node) -> bool:
        """Whether the fault may begin: not on a dead node, and not twice at once."""
        return (kind, node) not in self.on and FAULTS[kind].can_begin(self.cluster, node)

    def end(self, kind: str, node: Node) -> None:
        self.on.remove((kind, node))
        FAULTS[kind].end(self.cluster, node)

    def end_all(self) -> None:
        while self.on:
            self.end(*self.on[-1])

    def describe(self) -> str:
        return ", ".join(f"{count} × {kind}" for kind, count in sorted(self.counts.items())) or "no faults"


def possible_here(kinds: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Return the kinds that this machine can have, and why not the others."""
    reasons = {kind: reason for kind in kinds if (reason := FAULTS[kind].why_not_here())}
    return [kind for kind in kinds if kind not in reasons], reasons
