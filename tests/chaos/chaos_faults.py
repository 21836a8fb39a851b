"""Faults of the nodes of a cluster: kill -9, SIGSTOP, and cut links; and how they end.

A `Fault` begins on one node and ends again; `FAULTS` has one of each kind by name. Kind, time and node are random, from
a seed. All faults are counted, so that a test can print them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter

from chaos_nodes import Cluster, Node
from chaos_proxy import Link, between


class Fault(ABC):
    """One kind of fault, on one node at a time."""

    name: str

    @abstractmethod
    def begin(self, cluster: Cluster, node: Node) -> None: ...

    @abstractmethod
    def end(self, cluster: Cluster, node: Node) -> None: ...


class Kill(Fault):
    name = "kill"

    def begin(self, cluster: Cluster, node: Node) -> None:
        node.kill()

    def end(self, cluster: Cluster, node: Node) -> None:
        node.start()


class Pause(Fault):
    name = "pause"

    def begin(self, cluster: Cluster, node: Node) -> None:
        node.pause()

    def end(self, cluster: Cluster, node: Node) -> None:
        node.resume()


class KillOneNode(Fault):
    """One of the nodes of a machine dies; its supervisor starts it again."""

    name = "kill one node"

    def begin(self, cluster: Cluster, node: Node) -> None:
        node.kill_one_node(self.index)  # type: ignore[attr-defined]  # a machine of chaos_machines
        self.index += 1

    def end(self, cluster: Cluster, node: Node) -> None:
        """Nothing to do: the supervisor starts the node again."""

    index = 0


class Disconnected(Fault):
    """The node and the others cannot reach each other; clients still reach it, so an old leader still gets requests."""

    name = "disconnected"

    def begin(self, cluster: Cluster, node: Node) -> None:
        cluster.network.cut(self.links(node.id, [other for other in cluster.nodes if other != node.id]))

    def end(self, cluster: Cluster, node: Node) -> None:
        cluster.network.restore()

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


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (Kill(), KillOneNode(), Pause(), Disconnected(), ReceivesNothing(), SendsNothing(), OneLinkCut())
}


class Nemesis:
    """Begins, ends and counts faults."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self._on: list[tuple[Fault, Node]] = []

    def begin(self, kind: str, node: Node) -> None:
        fault = FAULTS[kind]
        fault.begin(self.cluster, node)
        self._on.append((fault, node))
        self.counts[kind] += 1

    def can_begin(self, kind: str, node: Node) -> bool:
        """Whether the fault may begin: not twice at once, not on a dead node, and only one network fault at a time."""
        is_network = isinstance(FAULTS[kind], Disconnected)
        return node.is_up and not (is_network and any(isinstance(fault, Disconnected) for fault, _ in self._on))

    def end_all(self) -> None:
        while self._on:
            fault, node = self._on.pop()
            fault.end(self.cluster, node)

    def describe(self) -> str:
        return ", ".join(f"{count} × {kind}" for kind, count in sorted(self.counts.items())) or "no faults"
