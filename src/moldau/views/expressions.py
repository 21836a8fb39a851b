"""The parts of a view's expression, and which kind of value each has.

A field of a JSON or CSV value can be anything, so it takes the kind of what it is compared or computed with: beside a
number it is read as a number, beside a text as a text. What cannot be read so is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    ANY = "any"
    """A field of the value, whose kind differs from record to record."""
    NULL = "null"


class Expression:
    """The base of all parts; `parts` are those inside."""

    __slots__ = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """Equal only to one of the same type: Python takes True for 1.0 and False for 0.0, and views do not."""

    value: str | float | bool | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Field(Expression):
    """A field of the value: names and, in arrays, indexes."""

    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A property of the whole record (key, value as text, timestamp …): see COLUMNS."""

    name: str


@dataclass(frozen=True, slots=True)
class Header(Expression):
    """The last header of this name, as a text."""

    name: str


@dataclass(frozen=True, slots=True)
class Not(Expression):
    operand: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    operand: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """A comparison, arithmetic or `||`."""

    operator: str
    left: Expression
    right: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Logical(Expression):
    """`and` or `or` of two or more conditions."""

    operator: str
    operands: tuple[Expression, ...]

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.operands


@dataclass(frozen=True, slots=True)
class In(Expression):
    operand: Expression
    items: tuple[Expression, ...]

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.operand, *self.items)


@dataclass(frozen=True, slots=True)
class Between(Expression):
    operand: Expression
    low: Expression
    high: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.operand, self.low, self.high)


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    operand: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Like(Expression):
    operand: Expression
    pattern: str
    ignores_case: bool = False

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Call(Expression):
    function: str
    arguments: tuple[Expression, ...]

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """`case when … then … else … end`: conditions and results in turns, then the last result."""

    branches: tuple[Expression, ...]
    otherwise: Expression

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (*self.branches, self.otherwise)


@dataclass(frozen=True, slots=True)
class Function:
    """What a function takes and returns. `returns` None: the kind of its arguments."""

    takes: tuple[Kind, ...]
    returns: Kind | None
    is_variadic: bool = False
    """The last argument may be repeated."""


_TEXT, _NUMBER, _ANY = Kind.TEXT, Kind.NUMBER, Kind.ANY
FUNCTIONS: Final = {
    "lower": Function((_TEXT,), _TEXT),
    "upper": Function((_TEXT,), _TEXT),
    "trim": Function((_TEXT,), _TEXT),
    "left": Function((_TEXT, _NUMBER), _TEXT),
    "right": Function((_TEXT, _NUMBER), _TEXT),
    "substr": Function((_TEXT, _NUMBER, _NUMBER), _TEXT),
    "length": Function((_TEXT,), _NUMBER),
    "sha256": Function((_TEXT,), _TEXT),
    "starts_with": Function((_TEXT, _TEXT), Kind.BOOLEAN),
    "ends_with": Function((_TEXT, _TEXT), Kind.BOOLEAN),
    "contains": Function((_TEXT, _TEXT), Kind.BOOLEAN),
    "abs": Function((_NUMBER,), _NUMBER),
    "floor": Function((_NUMBER,), _NUMBER),
    "ceil": Function((_NUMBER,), _NUMBER),
    "coalesce": Function((_ANY,), None, is_variadic=True),
    "number": Function((_NUMBER,), _NUMBER),
    "text": Function((_TEXT,), _TEXT),
}
"""All that an expression can call. Nothing here reads a file, the clock or another record."""

COLUMNS: Final = {
    "key": Kind.TEXT,
    "value": Kind.TEXT,
    "timestamp": Kind.NUMBER,
    "partition": Kind.NUMBER,
    "offset": Kind.NUMBER,
}
"""`timestamp` is in milliseconds since 1970."""

ARITHMETIC: Final = frozenset(("+", "-", "*", "/", "%"))


def kind_of(expression: Expression) -> Kind:
    match expression:
        case Literal(None):
            return Kind.NULL
        case Literal(bool()):
            return Kind.BOOLEAN
        case Literal(str()) | Header():
            return Kind.TEXT
        case Literal() | Negative():
            return Kind.NUMBER
        case Field():
            return Kind.ANY
        case Column(name):
            return COLUMNS[name]
        case Binary(operator):
            return Kind.NUMBER if operator in ARITHMETIC else Kind.TEXT if operator == "||" else Kind.BOOLEAN
        case Call(name, arguments):
            return FUNCTIONS[name].returns or common_kind(*arguments)
        case Case(branches, otherwise):
            return common_kind(*branches[1::2], otherwise)
    # Not, Logical, In, Between, IsNull and Like
    return Kind.BOOLEAN


def common_kind(*expressions: Expression) -> Kind:
    """Return the one kind that all are read as: the first of number, boolean, text, any that one of them has."""
    kinds = {kind_of(expression) for expression in expressions}
    for kind in (Kind.NUMBER, Kind.BOOLEAN, Kind.TEXT, Kind.ANY):
        if kind in kinds:
            return kind
    return Kind.NULL


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all its parts."""
    yield expression
    for part in expression.parts:
        yield from walk(part)


def depth_of(expression: Expression) -> int:
    """Return how deep the expression is nested. Without recursion: a chain of a thousand operators is nested as deep,
    and Python would give up before the limit is checked."""
    depth, level = 0, [expression]
    while level:
        depth += 1
        level = [part for each in level for part in each.parts]
    return depth
