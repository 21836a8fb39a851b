"""An index of what runs of batches hold: the least and the greatest value of the fields that conditions compare with a
number or a text. A run in which nothing can match is skipped without being read, by every view of the source.

It is learnt when a run is evaluated first, and small: a few numbers for 8 MiB of records.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.views.expressions import Between, Binary, Expression, Field, In, Literal, Logical

RUNS_MAX: Final = 4096
"""Indexed runs of one partition."""
RUN_BYTES_MIN: Final = 256 << 10
"""Shorter runs are not indexed: those at the end of a log are single batches, and would push out the others."""
KEYS_MAX: Final = 16
"""Indexed fields of one run, those of all views together."""
CHARACTERS_MAX: Final = 64
"""Texts that are longer are not indexed, neither as bounds nor as the names of a field."""

Value = float | str


class FieldKey(NamedTuple):
    """A field as numbers or as texts: each has its own order."""

    path: tuple[str | int, ...]
    is_text: bool


Ranges = Mapping[FieldKey, tuple[Value, Value] | None]
"""The least and the greatest value in a run; None if no record has one."""


class Constraint(NamedTuple):
    """A comparison that every shown record passes."""

    key: FieldKey
    operator: str
    values: tuple[Value, ...]

    def can_hold(self, low: Value, high: Value) -> bool:
        match self.operator:
            case "=":
                return any(low <= value <= high for value in self.values)  # type: ignore[operator]
            case "<":
                return low < self.values[0]  # type: ignore[operator]
            case "<=":
                return low <= self.values[0]  # type: ignore[operator]
            case ">":
                return high > self.values[0]  # type: ignore[operator]
        return high >= self.values[0]  # type: ignore[operator]


_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def constraints_of(where: Expression | None) -> tuple[Constraint, ...]:
    """The comparisons of fields with literals that all must hold. Others say nothing about a range."""
    return () if where is None else tuple(_constraints(where))


def _constraints(condition: Expression) -> Iterator[Constraint]:
    match condition:
        case Logical("and", operands):
            for operand in operands:
                yield from _constraints(operand)
        case Binary(operator, Field(path), Literal(value)) if operator in _MIRRORED:
            yield from _constraint(path, operator, (value,))
        case Binary(operator, Literal(value), Field(path)) if operator in _MIRRORED:
            yield from _constraint(path, _MIRRORED[operator], (value,))
        case Between(operand, low, high):
            yield from _constraints(Binary(">=", operand, low))
            yield from _constraints(Binary("<=", operand, high))
        case In(Field(path), items) if all(isinstance(item, Literal) for item in items):
            yield from _constraint(path, "=", tuple(item.value for item in items if isinstance(item, Literal)))


def _constraint(
    path: tuple[str | int, ...], operator: str, values: tuple[str | float | bool | None, ...]
) -> Iterator[Constraint]:
    numbers = tuple(value for value in values if isinstance(value, float))
    texts = tuple(value for value in values if isinstance(value, str))
    if len(numbers) == len(values):
        yield Constraint(FieldKey(path, False), operator, numbers)
    elif len(texts) == len(values) and operator == "=":
        yield Constraint(FieldKey(path, True), operator, texts)


def can_match(constraints: tuple[Constraint, ...], ranges: Ranges) -> bool:
    """Whether a record of a run with these ranges may pass. What is not indexed may."""
    for constraint in constraints:
        if constraint.key in ranges:
            bounds = ranges[constraint.key]
            if bounds is None or not constraint.can_hold(*bounds):
                return False
    return True


def indexed_fields(constraints: tuple[Constraint, ...]) -> tuple[FieldKey, ...]:
    """The fields of these constraints whose ranges are worth keeping."""
    keys = dict.fromkeys(constraint.key for constraint in constraints)
    short = [key for key in keys if sum(len(str(step)) for step in key.path) <= CHARACTERS_MAX]
    return tuple(short[:KEYS_MAX])


def is_short(bounds: tuple[Value, Value] | None) -> bool:
    return bounds is None or all(not isinstance(bound, str) or len(bound) <= CHARACTERS_MAX for bound in bounds)


def widen(ranges: dict[FieldKey, tuple[Value, Value] | None], others: Ranges) -> None:
    """Let the ranges contain those of more records of the same run."""
    for key, bounds in others.items():
        known = ranges.get(key)
        if known is None or bounds is None:
            ranges[key] = known or bounds
        else:
            ranges[key] = (min(known[0], bounds[0]), max(known[1], bounds[1]))


@dataclass(slots=True)
class IndexedRun:
    begin: int
    end: int
    ranges: dict[FieldKey, tuple[Value, Value] | None]
    unreadable: int
    """Values that are no JSON: a view that passes them may show them."""
    has_controls: bool
    """Control batches are always shown."""


class RunIndex:
    """The indexed runs of one partition of a source."""

    __slots__ = ("_begins", "_runs", "_version")

    def __init__(self) -> None:
        self._runs: dict[int, IndexedRun] = {}
        self._begins: list[int] = []
        self._version: object = None

    def check_version(self, version: object) -> None:
        """Forget everything if the records may be others."""
        if version != self._version:
            self._version = version
            self._runs.clear()
            self._begins.clear()

    def add(self, run: IndexedRun) -> None:
        known = self._runs.get(run.begin)
        if known is not None:
            if known.end == run.end:
                for key, bounds in run.ranges.items():
                    if key in known.ranges or len(known.ranges) < KEYS_MAX:
                        known.ranges[key] = bounds
            return
        if len(self._begins) >= RUNS_MAX:
            oldest = next(iter(self._runs))
            del self._runs[oldest]
            self._begins.remove(oldest)
        self._runs[run.begin] = run
        insort(self._begins, run.begin)

    def find(self, offset: int) -> IndexedRun | None:
        place = bisect_right(self._begins, offset) - 1
        run = self._runs[self._begins[place]] if place >= 0 else None
        return run if run is not None and offset < run.end else None
