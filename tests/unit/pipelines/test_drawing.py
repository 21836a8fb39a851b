"""Pictures of a graph: those in golden/ are unchanged, and pictures of random graphs show the right edges.

After an intended change, `python tests/unit/pipelines/test_drawing.py` draws the pictures in golden/ again. Check them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
from flows import BOOKSTORE, graphs
from harness.operations import operations_of
from hypothesis import given, settings
from marked_yaml import write

from moldau.pipelines.drawing.draw import Form, draw
from moldau.pipelines.drawing.graph import Edge, Graph, Node, NodeKind, graph
from moldau.pipelines.drawing.layout import Spacing, layout
from moldau.pipelines.drawing.mermaid import draw_mermaid
from moldau.pipelines.drawing.svg import draw_svg
from moldau.pipelines.drawing.terminal import draw_terminal
from moldau.pipelines.reading.loading import load

GOLDEN = Path(__file__).parent / "golden"
FILES: dict[Form, str] = {"terminal": "bookstore.txt", "mermaid": "bookstore.mmd", "svg": "bookstore.svg"}
SVG = "{http://www.w3.org/2000/svg}"


def bookstore(folder: Path) -> Graph:
    return graph(load(write(folder, BOOKSTORE), check_files=False))


@pytest.mark.parametrize("form", get_args(Form))
def test_the_picture_equals_the_one_in_golden(form: Form, tmp_path: Path) -> None:
    assert draw(bookstore(tmp_path), form) == (GOLDEN / FILES[form]).read_text(encoding="utf-8")


def test_no_layer_is_empty_after_sources_moved_to_a_later_one() -> None:
    breadths = {"a": 12, "c": 12, "b": 20, "x": 20, "z": 20}
    nodes = tuple(Node(name, NodeKind.TOPIC, name) for name in breadths)
    drawn = Graph("wide", nodes, (Edge("a", "x"), Edge("c", "z")))
    layers = layout(drawn, Spacing(lambda node: breadths[node.id], gap=2, pass_breadth=1, limit=40))
    names = [sorted(spot.node.id for spot in layer if spot.node) for layer in layers]
    assert names == [["a", "b"], ["c", "x"], ["z"]]


# Terminal

LINES = {
    "│": "ud", "─": "lr", "┌": "dr", "┐": "dl", "└": "ur", "┘": "ul", "├": "udr", "┤": "udl", "┬": "dlr", "┴": "ulr",
    "┼": "udlr",
}  # fmt: skip
STEPS = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
BACK = {"u": "d", "d": "u", "l": "r", "r": "l"}


class PictureReader:
    """Reads a drawing like a person: follows the lines from the foot of each box to the arrow tips."""

    def __init__(self, picture: str) -> None:
        self.rows = picture.split("\n")
        self.box_at: dict[tuple[int, int], str] = {}
        self.feet: list[tuple[int, int, str]] = []
        for top, row in enumerate(self.rows):
            for edge in re.finditer("╭─+╮", row):
                self._box(top, edge.start(), edge.end() - 1)

    def _box(self, top: int, left: int, right: int) -> None:
        name = self.rows[top + 1][left + 2 : right].strip()
        bottom = next(row for row in range(top, len(self.rows)) if self.at(row, left) == "╰")
        for row in range(top, bottom + 1):
            for column in range(left, right + 1):
                assert (row, column) not in self.box_at, "two boxes overlap"
                self.box_at[row, column] = name
        foot = self.rows[bottom].find("┬", left, right)
        if foot >= 0:
            self.feet.append((bottom, foot, name))

    def at(self, row: int, column: int) -> str:
        return self.rows[row][column] if 0 <= row < len(self.rows) and 0 <= column < len(self.rows[row]) else " "

    def edges(self) -> set[tuple[str, str]]:
        return {(name, target) for row, column, name in self.feet for target in self.targets(row + 1, column)}

    def targets(self, row: int, column: int) -> Iterator[str]:
        todo, seen = [(row, column, "d")], set()
        while todo:
            row, column, heading = todo.pop()
            if (row, column, heading) in seen:
                continue
            seen.add((row, column, heading))
            char = self.at(row, column)
            if char == "▼":
                assert heading == "d", "a line reaches an arrow tip from the side"
                yield self.box_at[row + 1, column]
                continue
            if char == "│" and heading in "lr":
                onward = heading  # it crosses a line from another box
            else:
                assert BACK[heading] in LINES[char], f"a line breaks off at {row}:{column}"
                onward = LINES[char].replace(BACK[heading], "")
            todo += [(row + STEPS[way][0], column + STEPS[way][1], way) for way in onward]


def assert_drawn(drawn: Graph, picture: str) -> None:
    titles = {node.id: node.title for node in drawn.nodes}
    reader = PictureReader(picture)
    assert set(reader.box_at.values()) == set(titles.values())
    assert reader.edges() == {(titles[edge.source], titles[edge.target]) for edge in drawn.edges}


def test_the_lines_of_the_bookstore_are_its_edges(tmp_path: Path) -> None:
    drawn = bookstore(tmp_path)
    picture = draw_terminal(drawn).plain
    assert_drawn(drawn, picture)
    assert max(len(row) for row in picture.split("\n")) <= 80


@settings(deadline=None)
@given(graphs())
def test_the_lines_of_a_random_graph_are_its_edges(drawn: Graph) -> None:
    assert_drawn(drawn, draw_terminal(drawn).plain)


def test_a_picture_fits_a_narrow_terminal() -> None:
    nodes = [
        Node("a", NodeKind.TOPIC, "a" * 60),
        *(Node(f"b{n}", NodeKind.SINK, f"b{n}", ("x" * 50,)) for n in range(5)),
    ]
    drawn = Graph("g", tuple(nodes), tuple(Edge("a", f"b{n}") for n in range(5)))
    picture = draw_terminal(drawn, 40).plain
    assert max(len(row) for row in picture.split("\n")) <= 40
    assert PictureReader(picture).edges() == {("a" * 29 + "…", f"b{n}") for n in range(5)}


def test_wide_and_control_characters_keep_the_frame_intact() -> None:
    picture = draw_terminal(Graph("g", (Node("a", NodeKind.SQL, "日本", ("a\x1b[31mb", "")),), ())).plain
    assert picture.split("\n") == ["╭─────────╮", "│ 日本    │", "│ a�[31mb │", "╰─────────╯", ""]


# Mermaid


def test_names_cannot_break_mermaid() -> None:
    drawn = draw_mermaid(Graph("g", (Node("a", NodeKind.SQL, 'x"] --> y\n<script>', ("end;",)),), ()))
    (box,) = [line for line in drawn.split("\n") if line.startswith("    n0")]
    assert box == '    n0["<b>x#34;#93; --#62; y#10;#60;script#62;</b><br/>end#59;"]:::sql'


# SVG


def boxes(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    rectangles = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "box"]
    return [
        (float(one.attrib["x"]), float(one.attrib["y"]), float(one.attrib["width"]), float(one.attrib["height"]))
        for one in rectangles
    ]


@settings(deadline=None)
@given(graphs(nodes_max=12))
def test_boxes_of_an_svg_do_not_overlap_and_are_inside_the_picture(drawn: Graph) -> None:
    root = ElementTree.fromstring(draw_svg(drawn))
    all_boxes = boxes(root)
    assert len(all_boxes) == len(drawn.nodes)
    assert sum(one.get("class", "").startswith("arrow") for one in root.iter(f"{SVG}path")) == len(drawn.edges)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for number, (x, y, w, h) in enumerate(all_boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for other_x, other_y, other_w, other_h in all_boxes[:number]:
            assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y


def test_names_cannot_break_an_svg() -> None:
    hostile = "</title><script>alert('&')\x00\x1b]]>"
    drawn = draw_svg(Graph(hostile, (Node("a", NodeKind.SQL, hostile, (hostile,)),), ()))
    root = ElementTree.fromstring(drawn)
    assert not list(root.iter(f"{SVG}script"))
    assert "alert" in "".join(root.itertext())


def test_a_long_name_is_cut_but_complete_in_the_tooltip() -> None:
    root = ElementTree.fromstring(draw_svg(Graph("g", (Node("a", NodeKind.SQL, "long" * 40),), ())))
    (title,) = [one.text for one in root.iter(f"{SVG}title")]
    assert title == "long" * 40
    (shown,) = [one.text or "" for one in root.iter(f"{SVG}text") if one.get("class") == "title"]
    assert shown.endswith("…")
    assert len(shown) < 40


def test_the_cost_of_a_long_line_is_linear() -> None:
    def cost(length: int) -> int:
        node = Node("n", NodeKind.SINK, "by content", ("case " + "when a then b " * length,))
        return operations_of(lambda: draw_svg(Graph("shop", (node,), ())))

    assert cost(80) < 3 * cost(40)


def test_a_graph_without_nodes_can_be_drawn() -> None:
    nothing = Graph("g", (), ())
    assert draw(nothing, "terminal") == ""
    assert draw(nothing, "mermaid") == "flowchart LR\n"
    ElementTree.fromstring(draw(nothing, "svg"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for form, file in FILES.items():
            (GOLDEN / file).write_text(draw(bookstore(Path(temporary)), form), encoding="utf-8")
