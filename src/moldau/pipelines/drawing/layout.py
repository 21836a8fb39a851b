"""Where the nodes of a flow stand: in layers, so that every edge goes forward, with few crossings and straight lines.

The classic four steps: layers by longest path; an edge that skips layers is led through them by points of its own; the
order within a layer by the mean of the neighbours; positions by least squares under that order. Everything is in units
of the caller's (characters, pixels): whether layers are rows or columns is the drawing's business.
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
    """Along the layer."""
    middle: float = 0.0
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spacing:
    breadth_of: Callable[[Node], float]
    gap: float
    pass_breadth: float
    """What an edge takes that passes a layer."""
    limit: float = float("inf")
    """How broad a layer may get before nodes move on to the next. Kept as far as the edges allow."""


def layout(graph: Graph, spacing: Spacing) -> list[list[Spot]]:
    """The layers, first to last, each in order, with positions from 0 on."""
    depth = _depths(graph, spacing)
    layers = _linked(graph, depth, spacing)
    _order(layers)
    _position(layers, spacing.gap)
    for layer in layers:
        _fit(layer, spacing)
    return layers


def _depths(graph: Graph, spacing: Spacing) -> dict[str, int]:
    """Each node one after the last that it needs, and sources no earlier than just before who needs them first."""
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
    return depth


def _linked(graph: Graph, depth: dict[str, int], spacing: Spacing) -> list[list[Spot]]:
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
                # One line for all edges of a node, until it has to part.
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
    """Sweeps down and up, keeping the order with the fewest crossings."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer, other in _pairs(layers, down):
            index = {id(spot): number for number, spot in enumerate(other)}
            own = {id(spot): number for number, spot in enumerate(layer)}

            def mean(spot: Spot, index: dict[int, int] = index, own: dict[int, int] = own, down: bool = down) -> float:
                near = [index[id(one)] for one in (spot.above if down else spot.below)]
                return sum(near) / len(near) if near else own[id(spot)]

            layer.sort(key=mean)
        if (crossings := _crossings(layers)) < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _pairs(layers: list[list[Spot]], down: bool) -> list[tuple[list[Spot], list[Spot]]]:
    """Each layer with the one before it, in the direction of the sweep."""
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
            _place(layer, [_wish(spot, down) for spot in layer], gap)
    left = min((spot.middle - spot.breadth / 2 for layer in layers for spot in layer), default=0)
    for layer in layers:
        for spot in layer:
            spot.middle -= left


def _fit(layer: Sequence[Spot], spacing: Spacing) -> None:
    """Pushes a layer that reaches beyond the limit back in, as far as there is room on the near side."""
    edge = spacing.limit
    for spot in reversed(layer):
        spot.middle = min(spot.middle, edge - spot.breadth / 2)
        edge = spot.middle - spot.breadth / 2 - spacing.gap
    edge = 0.0
    for spot in layer:
        spot.middle = max(spot.middle, edge + spot.breadth / 2)
        edge = spot.middle + spot.breadth / 2 + spacing.gap


def _wish(spot: Spot, down: bool) -> float:
    """Where a spot would like to be: amid its neighbours before it, and a little amid those after it."""
    first, second = (spot.above, spot.below) if down else (spot.below, spot.above)
    near = first or second
    return sum(other.middle for other in near) / len(near) if near else spot.middle


def _place(layer: Sequence[Spot], wishes: Sequence[float], gap: float) -> None:
    """Least squares: as near to the wishes as order and gaps allow. Neighbours that would overlap become one block,
    which stands at the mean of what its members wish (the pool-adjacent-violators way)."""
    shift: list[float] = []
    at = 0.0
    for spot in layer:
        shift.append(at + spot.breadth / 2)
        at += spot.breadth + gap
    blocks: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, shift, strict=True):
        total, count = wish - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for spot, mean, offset in zip(layer, means, shift, strict=True):
        spot.middle = mean + offset
