"""What people read: tables, bars in the terminal; and JSON for machines. Results come in and are not changed.

A table is built as plain text cells; a terminal draws it with rich, anything else gets aligned columns.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bench.measuring.results import Result, Spread, as_json

NOTHING = "–"
BAR_CELLS = 16
BAR_FACTOR_MAX = 16.0
"""A bar is full when one side is this many times better."""


@dataclass(frozen=True)
class Table:
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


def show(table: Table) -> None:
    if sys.stdout.isatty():
        drawn = RichTable(title=Text(table.title), title_justify="left")
        for number, header in enumerate(table.headers):
            drawn.add_column(header, justify="right" if number else "left")
        for row in table.rows:
            drawn.add_row(*map(Text, row))  # brackets are meant: they are not rich's markup
        Console().print(drawn)
    else:
        print("\n".join(_plain(table)))


def _plain(table: Table) -> list[str]:
    lines = [list(table.headers), *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.headers))]
    drawn = [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    return [table.title, drawn[0], "-" * len(drawn[0]), *drawn[1:], ""]


def write_markdown(path: Path, tables: Sequence[Table]) -> None:
    """Write the same tables for a documentation page, below the description of the machine."""
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine().items())
    path.write_text("\n\n".join([facts, *map(_markdown, tables)]) + "\n")


def _markdown(table: Table) -> str:
    rule = ["---", *["---:"] * (len(table.headers) - 1)]
    lines = [f"| {' | '.join(cells)} |" for cells in (table.headers, rule, *table.rows)]
    return f"{table.title}\n\n" + "\n".join(lines)


def number(value: float) -> str:
    """Return the number with three significant digits."""
    rounded = float(f"{value:.3g}")
    if not rounded:
        return "0"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def middle(spread_or_none: Spread | None) -> str:
    return NOTHING if spread_or_none is None else number(spread_or_none.median)


def with_spread(spread_or_none: Spread | None) -> str:
    if spread_or_none is None:
        return NOTHING
    if spread_or_none.low == spread_or_none.high:  # taken once
        return number(spread_or_none.median)
    return f"{number(spread_or_none.median)} [{number(spread_or_none.low)}–{number(spread_or_none.high)}]"


def show_bars(title: str, ratios: Mapping[str, float | None]) -> None:
    """Draw one line per ratio, to the right of the middle if it is above 1.0, on a logarithmic scale."""
    available = {name: ratio for name, ratio in ratios.items() if ratio}
    if not available:
        return
    print(title)
    width = max(map(len, available))
    for name, ratio in available.items():
        print(f"{name.ljust(width)} {_bar(ratio)} {number(ratio)}")
    print()


def _bar(ratio: float) -> str:
    cells = min(BAR_CELLS, round(abs(math.log(ratio)) / math.log(BAR_FACTOR_MAX) * BAR_CELLS))
    if ratio < 1:
        return ("▒" * cells).rjust(BAR_CELLS) + "│" + " " * BAR_CELLS
    return " " * BAR_CELLS + "│" + ("█" * cells).ljust(BAR_CELLS)


def write_json(path: Path, parts: Mapping[str, tuple[Sequence[Result], str]]) -> None:
    """Each part is some results and the name of the system that the others are compared with."""
    whole: dict[str, Any] = {"machine": machine()}
    whole |= {name: as_json(results, baseline) for name, (results, baseline) in parts.items()}
    path.write_text(json.dumps(whole, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Describe the machine: without it the numbers have no meaning."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
