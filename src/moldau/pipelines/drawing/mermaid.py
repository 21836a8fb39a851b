"""Draws a graph as Mermaid text, which GitHub, GitLab and most documentation tools render as a picture.

Labels are quoted and escaped as Mermaid's entities, so no name can break the diagram.
"""

from __future__ import annotations

from moldau.pipelines.drawing.graph import Graph, Node, NodeKind

_SHAPES = {
    NodeKind.TOPIC: ("[[", "]]"),
    NodeKind.TABLE: ("[(", ")]"),
    NodeKind.SQL: ("[", "]"),
    NodeKind.PYTHON: ("{{", "}}"),
    NodeKind.SINK: ("([", "])"),
    NodeKind.DEAD_LETTERS: ("[/", "/]"),
}
_CLASSES = {
    NodeKind.TOPIC: ("topic", "fill:#d7f0f5,stroke:#0e7490,color:#083344"),
    NodeKind.TABLE: ("table", "fill:#dbe7fd,stroke:#2563eb,color:#172554"),
    NodeKind.SQL: ("sql", "fill:#dcf3e2,stroke:#15803d,color:#052e16"),
    NodeKind.PYTHON: ("python", "fill:#fdf0c4,stroke:#a16207,color:#422006"),
    NodeKind.SINK: ("sink", "fill:#f1e3fb,stroke:#9333ea,color:#3b0764"),
    NodeKind.DEAD_LETTERS: ("dead", "fill:#fde2e2,stroke:#dc2626,color:#450a0a"),
}


def draw_mermaid(graph: Graph) -> str:
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    kinds = {node.id: node.kind for node in graph.nodes}
    lines = ["flowchart LR"]
    lines += [f"    {names[node.id]}{_box(node)}:::{_CLASSES[node.kind][0]}" for node in graph.nodes]
    for edge in graph.edges:
        arrow = "-.->" if kinds[edge.target] is NodeKind.DEAD_LETTERS else "-->"
        lines.append(f"    {names[edge.source]} {arrow} {names[edge.target]}")
    used = {node.kind for node in graph.nodes}
    lines += [f"    classDef {name} {style}" for kind, (name, style) in _CLASSES.items() if kind in used]
    return "\n".join(lines) + "\n"


def _box(node: Node) -> str:
    opening, closing = _SHAPES[node.kind]
    label = "<br/>".join([f"<b>{_escape(node.title)}</b>", *(_escape(line) for line in node.lines if line)])
    return f'{opening}"{label}"{closing}'


def _escape(text: str) -> str:
    """Return the text with everything but letters, digits and harmless signs as numbered entities."""
    return "".join(char if char.isalnum() or char in " .-_/:·," else f"#{ord(char)};" for char in text)
