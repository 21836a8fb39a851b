"""The picture of a flow in the form that is asked for: for a terminal, as Mermaid text, as SVG.

How each is drawn lives in draw_terminal, draw_mermaid and draw_svg.
"""

from __future__ import annotations

from typing import Literal

from moldau.pipelines.drawing.graph import Graph
from moldau.pipelines.drawing.mermaid import draw_mermaid
from moldau.pipelines.drawing.svg import draw_svg
from moldau.pipelines.drawing.terminal import draw_terminal

Form = Literal["terminal", "mermaid", "svg"]


def draw(graph: Graph, form: Form, width: int = 80) -> str:
    """The picture as text; `width` is the terminal's. For colours in a terminal print `draw_terminal(graph)`."""
    if form == "mermaid":
        return draw_mermaid(graph)
    return draw_svg(graph) if form == "svg" else draw_terminal(graph, width).plain
