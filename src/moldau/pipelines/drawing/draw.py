"""Draws the graph of a pipeline in the requested form: for a terminal, as Mermaid text, or as SVG.

The modules terminal, mermaid and svg draw one form each.
"""

from __future__ import annotations

from typing import Literal

from moldau.pipelines.drawing.graph import Graph
from moldau.pipelines.drawing.mermaid import draw_mermaid
from moldau.pipelines.drawing.svg import draw_svg
from moldau.pipelines.drawing.terminal import draw_terminal

Form = Literal["terminal", "mermaid", "svg"]


def draw(graph: Graph, form: Form, width: int = 80) -> str:
    """Return the picture as text; `width` is the terminal's. For colours in a terminal print `draw_terminal(graph)`."""
    if form == "mermaid":
        return draw_mermaid(graph)
    return draw_svg(graph) if form == "svg" else draw_terminal(graph, width).plain
