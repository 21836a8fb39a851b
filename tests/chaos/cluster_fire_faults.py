"""What befalls the nodes of a cluster: killed with -9, stopped with SIGSTOP, cut off from the others; and how it ends.

A `Fault` is begun on one node and ended again; `FAULTS` has one of each kind by name. Which, when and on whom is chance
from a seed. All that was done is counted, so that a test can say what it has survived.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter

from cluster_fire_nodes import Cluster, Node
from cluster_fire_proxy import Link, between


class Fault(ABC):
    """One kind of misfortune of one node at a time."""

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


class CutOff(Fault):
    """The node and the others do not hear each other; clients still reach it, and an old leader still hears them."""

    name = "cut off"

    def begin(self, cluster: Cluster, node: Node) -> None:
        cluster.network.cut(self.links(node.id, [other for other in cluster.nodes if other != node.id]))

    def end(self, cluster: Cluster, node: Node) -> None:
        cluster.network.mend()

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, others)


class Deaf(CutOff):
    """The node does not hear the others, who hear it."""

    name = "deaf"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return {(other, node) for other in others}


class Dumb(CutOff):
    """The others do not hear the node, which hears them."""

    name = "dumb"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return {(node, other) for other in others}


class Unlinked(CutOff):
    """The node and one of the others do not hear each other; the third hears both."""

    name = "unlinked"

    def links(self, node: int, others: list[int]) -> set[Link]:
        return between(node, others[:1])


FAULTS: dict[str, Fault] = {fault.name: fault for fault in (Kill(), Pause(), CutOff(), Deaf(), Dumb(), Unlinked())}


class Nemesis:
    """Begins and ends faults and counts them."""

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
        """Not a second time at once; the dead cannot be paused, and there is one network."""
        is_network = isinstance(FAULTS[kind], CutOff)
        return node.is_up and not (is_network and any(isinstance(fault, CutOff) for fault, _ in self._on))

    def end_all(self) -> None:
        while self._on:
            fault, node = self._on.pop()
            fault.end(self.cluster, node)

    def told(self) -> str:
        return ", ".join(f"{count} × {kind}" for kind, count in sorted(self.counts.items())) or "no faults"
