"""Reads samples from text in Prometheus' format. Pure.

What is between the quotes of a label may come from clients of the cluster: ids of groups and clients may have any
characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_LINE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def lines_of(text: str) -> list[str]:
    """Return the lines. Only a line feed ends one: `str.splitlines` would also break lines within labels."""
    return text.split("\n")


def parse(lines: Iterable[str], names: Sequence[str], prefix: str | None = None) -> Iterator[Sample]:
    """Yield the samples that have one of these names, or whose name begins with the prefix. Values that are not finite
    are left out: JSON has none."""
    begins = (*names, prefix) if prefix else tuple(names)
    for line in lines:
        if not line.startswith(begins):
            continue
        found = _LINE.match(line)
        if found is None or not (found[1] in names or (prefix and found[1].startswith(prefix))):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield Sample(found[1], {key: _unescaped(text) for key, text in _LABEL.findall(found[2] or "")}, value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
