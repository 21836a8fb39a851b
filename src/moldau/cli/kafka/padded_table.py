"""The tables of Kafka's newer tools: each column as wide as its widest cell, each cell ended by a tab. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def padded_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(lines)
