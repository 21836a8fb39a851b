"""The text format of Prometheus, version 0.0.4, written in pieces.

    # HELP name What it is.
    # TYPE name counter
    name{label="value"} 1

All series of a metric follow its HELP and TYPE lines. A collector is a generator of pieces: each piece is text with at
most `PIECE_SERIES` series, and the caller may do other work before it takes the next one. An empty piece means that
the collector has done some work without output yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PIECE_SERIES: Final = 250
"""To format this many series takes less than a millisecond."""
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
SUMMARY: Final = "summary"
UNTYPED: Final = "untyped"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Row = tuple[str, int | float]
"""(labels, value); the labels as `labels` writes them, "" without any."""


class Family(NamedTuple):
    """A metric: all series with one name."""

    name: str
    kind: str
    help: str

    @property
    def head(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


def labels(**values: str | int) -> str:
    """Return labels as text: `{topic="a",partition="0"}`."""
    return "{" + ",".join(f'{name}="{escape(str(value))}"' for name, value in values.items()) + "}"


def topic_prefix(topic: str) -> str:
    """Return how the labels of all partitions of a topic begin, up to the number: f'{prefix}{index}"}}' are the labels
    of one. This is several times as fast as `labels`."""
    return f'{{topic="{escape(topic)}",partition="'


def escape(value: str) -> str:
    """Escape the value of a label. Text that is not valid Unicode is replaced: it could not be sent."""
    if value.isalnum() and value.isascii():
        return value
    return value.encode(errors="replace").decode().translate(_ESCAPES)


def single(family: Family, value: int | float) -> str:
    """Return a metric without labels."""
    return f"{family.head}{family.name} {value}\n"


def pieces(family: Family, rows: Iterable[Row]) -> Iterator[str]:
    """Yield a metric with many series in pieces; nothing at all if there are no rows."""
    head = family.head
    for piece in lines(family.name, rows):
        yield head + piece
        head = ""


def columns(families: Sequence[Family], chunks: Sequence[Sequence[tuple[Any, ...]]]) -> Iterator[str]:
    """Yield several metrics, one after the other, whose series have the same labels. A row has the labels and then a
    value for each metric. Each metric has a piece for each chunk of rows, so a chunk has at most `PIECE_SERIES`."""
    for column, family in enumerate(families, 1):
        name, head = family.name, family.head
        for chunk in chunks:
            yield head + "".join([f"{name}{row[0]} {row[column]}\n" for row in chunk])
            head = ""


def lines(name: str, rows: Iterable[Row]) -> Iterator[str]:
    """Yield series without the head of their metric, in pieces."""
    remaining = iter(rows)
    while piece := "".join([f"{name}{labelled} {value}\n" for labelled, value in islice(remaining, PIECE_SERIES)]):
        yield piece
