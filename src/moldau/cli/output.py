"""How listings are printed: a table for people, JSON or YAML for programs.

On a terminal the table is rich's; in a pipe or a file it is plain padded text without escape codes, so that grep, awk
and a bug report can read it. rich is imported only when a terminal is there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FORMATS: Final = ("table", "json", "yaml")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u2028\u2029]")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z_/][\w./-]*(?<!-)")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_YAML_WORDS: Final = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"}

format_option: Callable[[F], F] = click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print: a table to read, or JSON or YAML for a program.",
)


class Bytes(int):
    """A size in bytes: a number in JSON and YAML, rounded to a unit in tables."""

    def __str__(self) -> str:
        power = min(len(_UNITS) - 1, (self.bit_length() - 1) // 10) if self else 0
        number = f"{self / 1024**power:.1f}" if power else f"{int(self)}"
        return f"{number} {_UNITS[power]}"


class Styled(str):
    """Text that a terminal shows in one of rich's styles; plain text everywhere else."""

    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def has_colours() -> bool:
    """Return whether the output is a terminal and its user did not turn colours off (NO_COLOR)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@dataclass(frozen=True)
class Table:
    """Column names and rows of cells. Numbers are aligned to the right; a list is shown with commas; None as a dash."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    empty: str = field(default="nothing to show", kw_only=True)

    def records(self) -> list[dict[str, Any]]:
        names = [column.lower().replace(" ", "_") for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def show(output_format: str, *tables: Table, data: Any = None) -> None:
    """Print the tables, or as JSON or YAML `data`. If `data` is None, print the rows of the first table as records."""
    if output_format == "table":
        for number, table in enumerate(tables):
            _show_table(table, first=number == 0)
        return
    if data is None:
        data = tables[0].records()
    click.echo(_json(data, indent=2) if output_format == "json" else to_yaml(data))


def _show_table(table: Table, first: bool) -> None:
    if sys.stdout.isatty():
        _show_rich(table)
        return
    if not first:
        click.echo()
    for line in plain_lines(table):
        click.echo(line)


def _show_rich(table: Table) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    if table.title:
        # Not as the table's own title, which would be folded at the table's width.
        console.print(Text(table.title, "italic"))
    drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if _is_numeric(table, index) else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell_text(cell), cell.style if isinstance(cell, Styled) else "") for cell in row))
    console.print(drawn if table.rows else table.empty)


def plain_lines(table: Table) -> Iterator[str]:
    """Yield the lines of the table as text: two spaces between columns, nothing after the last."""
    if table.title:
        yield table.title
    if not table.rows:
        yield table.empty
        return
    cells = [list(table.columns), *([cell_text(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_right_aligned = [_is_numeric(table, index) for index in range(len(widths))]
    for row in cells:
        padded = (
            cell.rjust(width) if align_right else cell.ljust(width)
            for cell, width, align_right in zip(row, widths, is_right_aligned, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _is_numeric(table: Table, index: int) -> bool:
    values = [row[index] for row in table.rows if row[index] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal, unless `yes`. Scripts are not asked: without a terminal the answer is always yes."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def cell_text(cell: Any) -> str:
    """Return the text of a cell. Control characters are escaped: names of clients and groups may have any, and none may
    reach the terminal or begin a line."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), _raw_text(cell))


def _raw_text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, list | tuple):
        return ",".join(map(str, cell))
    return str(cell)


def to_yaml(data: Any, indent: str = "") -> str:
    """Return plain data as YAML: lists and dicts in block style unless empty, scalars that need quotes as in JSON."""
    if isinstance(data, dict) and data:
        return "\n".join(f"{indent}{_scalar(key)}:{_below(value, indent)}" for key, value in data.items())
    if isinstance(data, list) and data:
        return "\n".join(f"{indent}- {to_yaml(item, indent + '  ').lstrip(' ')}" for item in data)
    return indent + _scalar(data)


def _below(value: Any, indent: str) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + to_yaml(value, indent + "  ")
    return " " + _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    return _json(value)


def _json(value: Any, indent: int | None = None) -> str:
    """Return JSON with the control characters escaped that it would leave as they are: terminals obey some of them, and
    YAML takes others for the end of a line."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of bytes on stderr, and yield the function that advances it. Needs a terminal."""
    if not sys.stderr.isatty():
        yield lambda advance: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda advance: progress.advance(task, advance)
