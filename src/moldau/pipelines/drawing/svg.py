"""Draws a graph as SVG from left to right: columns of rounded boxes, curves between them, colours by kind.

One file without scripts, fonts or links. Colours follow the reader's light or dark mode; a viewer without modes shows
the light ones. Tooltips have the whole text where a line had to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

from moldau.pipelines.drawing.graph import Graph, Node, NodeKind
from moldau.pipelines.drawing.layout import Spacing, Spot, layout

MARGIN, TOP = 24, 56
BOX_GAP, COLUMN_GAP = 18, 72
LINE, PADDING, STRIPE = 17, 12, 5
NAME_SIZE, TITLE_SIZE, TEXT_SIZE = 18, 14, 11.5
BOLD = 1.2
"""Width of a bold letter relative to a normal one."""
TEXT_WIDTH_MAX = 260
_ROUND = 9

_COLOURS = {
    NodeKind.TOPIC: ("topic", "#0e7490", "#22d3ee"),
    NodeKind.TABLE: ("table", "#2563eb", "#60a5fa"),
    NodeKind.SQL: ("sql", "#15803d", "#4ade80"),
    NodeKind.PYTHON: ("python", "#b45309", "#fbbf24"),
    NodeKind.SINK: ("sink", "#9333ea", "#c084fc"),
    NodeKind.DEAD_LETTERS: ("dead", "#dc2626", "#f87171"),
}
"""The CSS class of each kind, and its colours in light and in dark mode."""
_LEGEND = {
    NodeKind.TOPIC: "topic",
    NodeKind.TABLE: "file or table",
    NodeKind.SQL: "SQL step",
    NodeKind.PYTHON: "Python step",
    NodeKind.SINK: "sink",
    NodeKind.DEAD_LETTERS: "dead letters",
}


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float


def draw_svg(graph: Graph) -> str:
    heights = {node.id: _height(node) for node in graph.nodes}
    layers = layout(graph, Spacing(lambda node: heights[node.id], gap=BOX_GAP, pass_breadth=10))
    boxes = _boxes(layers)
    right = max((box.x + box.width for box in boxes.values()), default=0)
    legend_width = _legend_width(graph)
    width = max(right, legend_width, _text_width(graph.name, NAME_SIZE * BOLD)) + MARGIN
    bottom = max((box.y + box.height for box in boxes.values()), default=TOP)
    height = bottom + MARGIN + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" aria-label={quoteattr("Flow of the pipeline " + _printable(graph.name))}>',
        _style(),
        f'<rect class="page" width="{_n(width)}" height="{_n(height)}" rx="12"/>',
        f'<text class="name" x="{MARGIN}" y="34">{escape(_printable(graph.name))}</text>',
        *(
            _edge(boxes[id(spot)], boxes[id(below)], below)
            for layer in layers
            for spot in layer
            for below in spot.below
        ),
        *(_node(spot.node, boxes[id(spot)]) for layer in layers for spot in layer if spot.node),
        *_legend(graph, bottom + MARGIN + 8),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _height(node: Node) -> float:
    return 2 * PADDING + LINE * (1 + sum(1 for line in node.lines if line)) - 3


def _boxes(layers: list[list[Spot]]) -> dict[int, _Box]:
    """Return the boxes. A column is as wide as its widest box; an edge that passes it is a thin box of that width."""
    boxes = {}
    x: float = MARGIN
    for layer in layers:
        width = max((_width(spot.node) for spot in layer if spot.node), default=0)
        for spot in layer:
            boxes[id(spot)] = _Box(x, TOP + spot.middle - spot.breadth / 2, width, spot.breadth)
        x += width + COLUMN_GAP
    return boxes


def _width(node: Node) -> float:
    widest = max(
        _text_width(node.title, TITLE_SIZE * BOLD), *(_text_width(line, TEXT_SIZE) for line in ("", *node.lines))
    )
    return min(widest, TEXT_WIDTH_MAX) + 2 * PADDING + STRIPE


def _text_width(text: str, size: float) -> float:
    """Estimate the width for the usual sans-serif fonts: narrow, wide and double-width letters."""
    units = 0.0
    for char in text:
        if east_asian_width(char) in "WF":
            units += 1.0
        elif char in "iljtfrI.,:;|'·()[] ":
            units += 0.36
        elif char in "mwMW@%":
            units += 0.88
        else:
            units += 0.66 if char.isupper() else 0.58
    return units * size


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _cut(text: str, size: float) -> str:
    printable = _printable(text)
    if _text_width(printable, size) <= TEXT_WIDTH_MAX:
        return printable
    printable = printable[:TEXT_WIDTH_MAX]  # no letter is narrower than a pixel
    while printable and _text_width(printable + "…", size) > TEXT_WIDTH_MAX:
        printable = printable[:-1]
    return printable.rstrip() + "…"


def _node(node: Node, box: _Box) -> str:
    x, y, width, height = (_n(value) for value in (box.x, box.y, box.width, box.height))
    whole = "\n".join(_printable(line) for line in (node.title, *node.lines) if line)
    lines = [("title", _cut(node.title, TITLE_SIZE * BOLD))]
    lines += [("text", _cut(line, TEXT_SIZE)) for line in node.lines if line]
    text_x, text_y = box.x + STRIPE + PADDING, box.y + PADDING + 11
    return "\n".join(
        [
            f'<g class="{_COLOURS[node.kind][0]}"><title>{escape(whole)}</title>',
            f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="{_ROUND}"/>',
            f'<path class="stripe" d="{_stripe(box)}"/>',
            *(
                f'<text class="{name}" x="{_n(text_x)}" y="{_n(text_y + LINE * number)}">{escape(line)}</text>'
                for number, (name, line) in enumerate(lines)
            ),
            "</g>",
        ]
    )


def _stripe(box: _Box) -> str:
    """Return the path of the coloured left edge of a box, with the same rounded corners."""
    right, bottom = _n(box.x + STRIPE), box.y + box.height
    return (
        f"M{right} {_n(box.y + 0.6)}A{_ROUND} {_ROUND} 0 0 0 {_n(box.x)} {_n(box.y + _ROUND)}V{_n(bottom - _ROUND)}"
        f"A{_ROUND} {_ROUND} 0 0 0 {right} {_n(bottom - 0.6)}Z"
    )


def _edge(start: _Box, end: _Box, below: Spot) -> str:
    """Return a curve that is horizontal at both ends, and straight through columns that it only passes."""
    x1, y1 = start.x + start.width, start.y + start.height / 2
    x2, y2 = end.x, end.y + end.height / 2
    bend = (x2 - x1) / 2
    tip = x2 - 6 if below.node else x2
    path = f"M{_n(x1)} {_n(y1)}C{_n(x1 + bend)} {_n(y1)} {_n(x2 - bend)} {_n(y2)} {_n(tip)} {_n(y2)}"
    if below.node is None:
        return f'<path class="edge" d="{path}H{_n(x2 + end.width)}"/>'
    kind = " bad" if below.node.kind is NodeKind.DEAD_LETTERS else ""
    arrow = f"M{_n(x2 - 8)} {_n(y2 - 4.5)}L{_n(x2 - 1)} {_n(y2)}L{_n(x2 - 8)} {_n(y2 + 4.5)}Z"
    return f'<path class="edge{kind}" d="{path}"/>\n<path class="arrow{kind}" d="{arrow}"/>'


def _legend_entries(graph: Graph) -> Iterator[tuple[NodeKind, float]]:
    """Yield the kinds that occur, each with the x coordinate of its entry."""
    x: float = MARGIN
    for kind in NodeKind:
        if any(node.kind is kind for node in graph.nodes):
            yield kind, x
            x += 16 + _text_width(_LEGEND[kind], TEXT_SIZE) + 18


def _legend_width(graph: Graph) -> float:
    return max((x + 16 + _text_width(_LEGEND[kind], TEXT_SIZE) for kind, x in _legend_entries(graph)), default=0)


def _legend(graph: Graph, y: float) -> Iterator[str]:
    for kind, x in _legend_entries(graph):
        yield (
            f'<g class="{_COLOURS[kind][0]}">'
            f'<rect class="stripe" x="{_n(x)}" y="{_n(y)}" width="10" height="10" rx="3"/>'
            f'<text class="text" x="{_n(x + 16)}" y="{_n(y + 9)}">{_LEGEND[kind]}</text></g>'
        )


def _style() -> str:
    light = "".join(f".{name} .stripe{{fill:{colour}}}" for name, colour, _ in _COLOURS.values())
    dark = "".join(f".{name} .stripe{{fill:{colour}}}" for name, _, colour in _COLOURS.values())
    return (
        "<style>\n"
        "text{font-family:ui-sans-serif,system-ui,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}\n"
        f".name{{font-size:{NAME_SIZE}px;font-weight:600;fill:#1f2937}}\n"
        f".title{{font-size:{TITLE_SIZE}px;font-weight:600;fill:#111827}}.text{{font-size:{TEXT_SIZE}px;fill:#4b5563}}\n"
        ".page{fill:#fff}.box{fill:#f9fafb;stroke:#d1d5db}.edge{fill:none;stroke:#9ca3af;stroke-width:1.6}"
        ".arrow{fill:#9ca3af}.edge.bad{stroke:#dc2626;stroke-dasharray:4 4}.arrow.bad{fill:#dc2626}\n"
        f"{light}\n"
        "@media (prefers-color-scheme:dark){.name,.title{fill:#f3f4f6}.text{fill:#9ca3af}.page{fill:#0f172a}"
        ".box{fill:#1e293b;stroke:#334155}.edge{stroke:#64748b}.arrow{fill:#64748b}"
        f".edge.bad{{stroke:#f87171}}.arrow.bad{{fill:#f87171}}{dark}}}\n"
        "</style>"
    )


def _n(value: float) -> str:
    """Return a number with at most one decimal, as short as possible."""
    return f"{value:.1f}".removesuffix(".0")
