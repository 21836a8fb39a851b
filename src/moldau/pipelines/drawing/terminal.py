"""Draws a graph with the box characters of a terminal, from top to bottom, eighty columns wide by default.

╭─────────────────╮
│ orders          │      Rows of boxes. Between two rows is a channel in which lines run horizontally, each on its
│ topic shop      │      own track, and then down to their box. Where lines from different boxes cross, the
╰────────┬────────╯      horizontal one has a gap.
         ▼
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import floor

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from moldau.pipelines.drawing.graph import Graph, Node, NodeKind
from moldau.pipelines.drawing.layout import Spacing, Spot, layout

TEXT_WIDTH_MAX = 34
STYLES = {
    NodeKind.TOPIC: "cyan",
    NodeKind.TABLE: "blue",
    NodeKind.SQL: "green",
    NodeKind.PYTHON: "yellow",
    NodeKind.SINK: "magenta",
    NodeKind.DEAD_LETTERS: "red",
}
_LINE_STYLE = "bright_black"
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_CORNERS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
"""Indexed by the sum of the directions in which a line leaves the cell."""


@dataclass(slots=True)
class _Canvas:
    """Characters and their styles by row and column. A wide character is one entry, followed by an empty one."""

    cells: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    lines: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """For each cell the directions of its line, and its net: the id of the spot at which the line starts."""

    def write(self, row: int, column: int, text: str, style: str) -> None:
        for char in text:
            self.cells[row, column] = (char, style)
            if cell_len(char) == 2:
                self.cells[row, column + 1] = ("", style)
            column += max(1, cell_len(char))

    def line(self, row: int, column: int, directions: int, net: int) -> None:
        """Draw a cell of a line. Lines of one net join; where two nets cross, only the vertical line is drawn."""
        old, owner = self.lines.get((row, column), (0, net))
        if owner == net:
            self.lines[row, column] = (old | directions, net)
        elif directions & (_UP | _DOWN):
            self.lines[row, column] = (directions & (_UP | _DOWN), net)

    def text(self) -> Text:
        for at, (directions, _) in self.lines.items():
            self.cells.setdefault(at, (_CORNERS[directions], _LINE_STYLE))
        rows: dict[int, dict[int, tuple[str, str]]] = {}
        for (row, column), cell in self.cells.items():
            rows.setdefault(row, {})[column] = cell
        drawn = Text()
        for row in range(1 + max(rows, default=-1)):
            cells = rows.get(row, {})
            for column in range(1 + max(cells, default=-1)):
                drawn.append(*cells.get(column, (" ", "")))
            drawn.append("\n")
        return drawn


def draw_terminal(graph: Graph, width: int = 80) -> Text:
    """Return the picture with colours; its `.plain` has none."""
    texts = {node.id: _content(node, max(8, min(TEXT_WIDTH_MAX, width - 10))) for node in graph.nodes}
    layers = _layers(graph, texts, width)
    columns = {id(spot): _left(spot) + int(spot.breadth) // 2 for layer in layers for spot in layer}
    canvas = _Canvas()
    row = 0
    for number, layer in enumerate(layers):
        height = max((2 + len(texts[spot.node.id]) for spot in layer if spot.node), default=1)
        for spot in layer:
            _draw_spot(canvas, spot, columns[id(spot)], row, height, texts)
        row += height
        if number + 1 < len(layers):
            row += _draw_channel(canvas, layer, layers[number + 1], columns, row)
    return canvas.text()


def _layers(graph: Graph, texts: dict[str, list[str]], width: int) -> list[list[Spot]]:
    """Return rows that fit into the width if possible. Lines that pass a row need room beside its boxes, and their
    number is known only after the layout, so try with less and less room for boxes."""
    incoming = Counter(edge.target for edge in graph.edges)

    def breadth(node: Node) -> float:
        """Return enough for the text, and for every incoming line to end in its own column."""
        return max(4 + max(cell_len(line) for line in texts[node.id]), 3 + 2 * incoming[node.id])

    layers: list[list[Spot]] = []
    for room in range(width, width // 2, -6):
        layers = layout(graph, Spacing(breadth, gap=2, pass_breadth=1, limit=room))
        if all(_left(spot) + spot.breadth <= width for layer in layers for spot in layer):
            break
    return layers


def _left(spot: Spot) -> int:
    """Return the left column. Always round half up, so that rounding never reduces the gap between two spots."""
    return floor(spot.middle - spot.breadth / 2 + 0.5)


def _content(node: Node, widest: int) -> list[str]:
    return [_cut(line, widest) for line in (node.title, *filter(None, node.lines))]


def _cut(line: str, widest: int) -> str:
    printable = "".join(char if char.isprintable() else "�" for char in line)
    return printable if cell_len(printable) <= widest else set_cell_size(printable, widest - 1).rstrip() + "…"


def _draw_spot(canvas: _Canvas, spot: Spot, middle: int, row: int, height: int, texts: dict[str, list[str]]) -> None:
    """Draw a box at the top of its row and the line from it to the end of the row; for a passing edge only a line."""
    top = row
    if spot.node is not None:
        lines = texts[spot.node.id]
        _draw_box(canvas, spot, middle, row, lines)
        top = row + len(lines) + 2
        if spot.below:
            canvas.write(top - 1, middle, "┬", STYLES[spot.node.kind])
    if spot.below:
        for below in range(top, row + height):
            canvas.line(below, middle, _UP | _DOWN, id(spot))


def _draw_box(canvas: _Canvas, spot: Spot, middle: int, row: int, lines: list[str]) -> None:
    assert spot.node is not None
    style = STYLES[spot.node.kind]
    left, inner = middle - int(spot.breadth) // 2, int(spot.breadth) - 2
    canvas.write(row, left, "╭" + "─" * inner + "╮", style)
    for number, line in enumerate(lines, 1):
        canvas.write(row + number, left, "│ ", style)
        canvas.write(row + number, left + 2, line, f"bold {style}" if number == 1 else "default")
        canvas.write(row + number, left + inner, " │", style)
    canvas.write(row + len(lines) + 1, left, "╰" + "─" * inner + "╯", style)


def _draw_channel(canvas: _Canvas, layer: list[Spot], following: list[Spot], columns: dict[int, int], row: int) -> int:
    """Draw the lines from one row of boxes to the next; return how many terminal rows they take."""
    starts = {columns[id(spot)]: spot for spot in layer if spot.below}
    ports = _ports(following, starts, columns)
    nets = [(start, sorted(ports[id(spot), id(below)] for below in spot.below), spot) for start, spot in starts.items()]
    tracks = _tracks([(min(start, ends[0]), max(start, ends[-1])) for start, ends, _ in nets])
    height = max(tracks, default=-1) + 1
    for (start, ends, spot), track in zip(nets, tracks, strict=True):
        _draw_net(canvas, id(spot), (start, ends), row + max(track, 0), row, row + height)
    for spot in following:
        for above in spot.above:
            column = ports[id(above), id(spot)]
            if spot.node is not None:
                canvas.cells[row + height, column] = ("▼", _LINE_STYLE)
            else:
                canvas.line(row + height, column, _UP | _DOWN, id(above))
    return height + 1


def _ports(following: list[Spot], starts: dict[int, Spot], columns: dict[int, int]) -> dict[tuple[int, int], int]:
    """Return the column in which each line ends: straight down if possible, never below the start of another line,
    because that would join them."""
    ports: dict[tuple[int, int], int] = {}
    for spot in following:
        incoming = sorted(spot.above, key=lambda above: columns[id(above)])
        left = columns[id(spot)] - int(spot.breadth) // 2
        right = left + int(spot.breadth) - 1
        used: set[int] = set()
        for number, above in enumerate(incoming, 1):
            start = columns[id(above)]
            even = left + round((right - left) * number / (len(incoming) + 1))
            preferred = start if len(incoming) == 1 and left < start < right else even
            free = [
                column
                for column in (range(left + 1, right) if spot.node else range(left - 1, right + 2))
                if column not in used and starts.get(column, above) is above
            ]
            port = min(free, key=lambda column: abs(column - preferred)) if free else preferred
            used.add(port)
            ports[id(above), id(spot)] = port
            if spot.node is None:
                columns[id(spot)] = port
    return ports


def _tracks(spans: list[tuple[int, int]]) -> list[int]:
    """Return a track for each span, -1 for a line that goes straight down. Spans on one track do not touch."""
    ends: list[int] = []
    tracks = [-1] * len(spans)
    for index in sorted(range(len(spans)), key=lambda index: spans[index]):
        first, last = spans[index]
        if first == last:
            continue
        track = next((number for number, end in enumerate(ends) if end + 1 < first), len(ends))
        ends[track : track + 1] = [last]
        tracks[index] = track
    return tracks


def _draw_net(canvas: _Canvas, net: int, line: tuple[int, list[int]], track: int, top: int, bottom: int) -> None:
    """Draw a line down from the start to the track, along the track, and down to each end."""
    start, ends = line
    for row in range(top, track):
        canvas.line(row, start, _UP | _DOWN, net)
    first, last = min(start, ends[0]), max(start, ends[-1])
    if first == last:
        for row in range(track, bottom):
            canvas.line(row, start, _UP | _DOWN, net)
        return
    for column in range(first, last + 1):
        directions = (_LEFT if column > first else 0) | (_RIGHT if column < last else 0)
        directions |= (_UP if column == start else 0) | (_DOWN if column in ends else 0)
        canvas.line(track, column, directions, net)
    for end in ends:
        for row in range(track + 1, bottom):
            canvas.line(row, end, _UP | _DOWN, net)
