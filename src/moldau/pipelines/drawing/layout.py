"""Places the nodes of a graph in layers, so that every edge goes forward, with few crossings and straight lines.

The classic four steps: layers by longest path; an edge that skips layers passes each through a point; the order within
a layer by the mean of the neighbours; positions by least squares under that order. The caller chooses the unit
(characters, pixels), and whether layers are rows or columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from moldau.pipelines.drawing.graph import Graph, Node

_SWEEPS = 12


@dataclass(slots=True, eq=False)
class Spot:
    """A node in its layer, or a point through which an edge passes."""

    node: Node | None
    breadth: float
    """The extent along the layer."""
    middle: float = 0.0
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spacing:
    breadth_of: Callable[[Node], float]
    gap: float
    pass_breadth: float
    """The breadth of an edge that passes through a layer."""
    limit: float = float("inf")
    """Maximum breadth of a layer before nodes move to the next one. Edges may force a layer to exceed it."""


def layout(graph: Graph, spacing: Spacing) -> list[list[Spot]]:
    """Return the layers from first to last, each in order, with positions from 0."""
    depth = _depths(graph, spacing)
    layers = _link_layers(graph, depth, spacing)
    _order(layers)
    _position(layers, spacing.gap)
    for layer in layers:
        _fit(layer, spacing)
    return layers


def _depths(graph: Graph, spacing: Spacing) -> dict[str, int]:
    """Return the layer of each node: after all nodes it needs. A source is just before the first node it feeds.

    The nodes of a graph are in topological order. No layer is without nodes.
    """
    needs: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    feeds: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        needs[edge.target].append(edge.source)
        feeds[edge.source].append(edge.target)
    depth: dict[str, int] = {}
    used: dict[int, float] = {}
    for node in graph.nodes:
        at = 1 + max((depth[other] for other in needs[node.id]), default=-1)
        breadth = spacing.breadth_of(node) + spacing.gap
        while used.get(at, 0) and used.get(at, 0) + breadth > spacing.limit + spacing.gap:
            at += 1
        depth[node.id] = at
        used[at] = used.get(at, 0) + breadth
    for node in graph.nodes:
        if feeds[node.id] and not needs[node.id]:
            latest = min(depth[other] for other in feeds[node.id]) - 1
            breadth = spacing.breadth_of(node) + spacing.gap
            if latest > depth[node.id] and used.get(latest, 0) + breadth <= spacing.limit + spacing.gap:
                used[depth[node.id]] -= breadth
                used[latest] = used.get(latest, 0) + breadth
                depth[node.id] = latest
    layer_of = {at: layer for layer, at in enumerate(sorted(set(depth.values())))}
    return {name: layer_of[at] for name, at in depth.items()}


def _link_layers(graph: Graph, depth: dict[str, int], spacing: Spacing) -> list[list[Spot]]:
    layers: list[list[Spot]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    spots: dict[str, Spot] = {}
    for node in graph.nodes:
        spots[node.id] = Spot(node, spacing.breadth_of(node))
        layers[depth[node.id]].append(spots[node.id])
    passing: dict[tuple[str, int], Spot] = {}
    for edge in graph.edges:
        at = spots[edge.source]
        for layer in range(depth[edge.source] + 1, depth[edge.target]):
            if (edge.source, layer) not in passing:
                # All edges of a node share one line until they must separate.
                passing[edge.source, layer] = Spot(None, spacing.pass_breadth)
                layers[layer].append(passing[edge.source, layer])
                _link(at, passing[edge.source, layer])
            at = passing[edge.source, layer]
        _link(at, spots[edge.target])
    return layers


def _link(above: Spot, below: Spot) -> None:
    above.below.append(below)
    below.above.append(above)


def _order(layers: list[list[Spot]]) -> None:
    """Sort the layers in sweeps down and up, and keep the order with the fewest crossings."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer, other in _pairs(layers, down):
            index = {id(spot): number for number, spot in enumerate(other)}
            own = {id(spot): number for number, spot in enumerate(layer)}

            def mean(spot: Spot, index: dict[int, int] = index, own: dict[int, int] = own, down: bool = down) -> float:
                neighbours = [index[id(one)] for one in (spot.above if down else spot.below)]
                return sum(neighbours) / len(neighbours) if neighbours else own[id(spot)]

            layer.sort(key=mean)
        if (crossings := _crossings(layers)) < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _pairs(layers: list[list[Spot]], down: bool) -> list[tuple[list[Spot], list[Spot]]]:
    """Return each layer with the one before it in the direction of the sweep."""
    if down:
        return list(zip(layers[1:], layers, strict=False))
    return list(zip(reversed(layers[:-1]), reversed(layers), strict=False))


def _crossings(layers: list[list[Spot]]) -> int:
    total = 0
    for layer, below in pairwise(layers):
        index = {id(spot): number for number, spot in enumerate(below)}
        ends = [index[id(other)] for spot in layer for other in sorted(spot.below, key=lambda one: index[id(one)])]
        total += sum(first > second for number, first in enumerate(ends) for second in ends[number + 1 :])
    return total


def _position(layers: list[list[Spot]], gap: float) -> None:
    for layer in layers:
        _place(layer, [0.0] * len(layer), gap)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _place(layer, [_preferred(spot, down) for spot in layer], gap)
    left = min((spot.middle - spot.breadth / 2 for layer in layers for spot in layer), default=0)
    for layer in layers:
        for spot in layer:
            spot.middle -= left


def _fit(layer: Sequence[Spot], spacing: Spacing) -> None:
    """Move the spots of a layer that exceeds the limit back, as far as there is room before them."""
    edge = spacing.limit
    for spot in reversed(layer):
        spot.middle = min(spot.middle, edge - spot.breadth / 2)
        edge = spot.middle - spot.breadth / 2 - spacing.gap
    edge = 0.0
    for spot in layer:
        spot.middle = max(spot.middle, edge + spot.breadth / 2)
        edge = spot.middle + spot.breadth / 2 + spacing.gap


def _preferred(spot: Spot, down: bool) -> float:
    """Return the preferred position of a spot: the mean of its neighbours before it, or of those after it if none."""
    first, second = (spot.above, spot.below) if down else (spot.below, spot.above)
    neighbours = first or second
    return sum(other.middle for other in neighbours) / len(neighbours) if neighbours else spot.middle


def _place(layer: Sequence[Spot], preferences: Sequence[float], gap: float) -> None:
    """Place spots by least squares as near to their preferred positions as order and gaps allow. Neighbours that would
    overlap form a block at the mean of their preferences (the pool-adjacent-violators algorithm)."""
    packed_middles: list[float] = []
    at = 0.0
    for spot in layer:
        packed_middles.append(at + spot.breadth / 2)
        at += spot.breadth + gap
    blocks: list[tuple[float, int]] = []
    for preference, packed_middle in zip(preferences, packed_middles, strict=True):
        total, count = preference - packed_middle, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for spot, mean, packed_middle in zip(layer, means, packed_middles, strict=True):
        spot.middle = mean + packed_middle
