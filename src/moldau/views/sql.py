"""Compiles a view's definition to queries of DuckDB over a table of records.

The table has `i` (the row), the columns of `expressions.COLUMNS`, `fields` (a list, for CSV values), and `h0`, `h1` …
for the headers that are used. Every text of the author's becomes a literal or a quoted path: nothing of it is SQL. No
expression raises an error for a value: what cannot be read is null, and so is a quotient by zero (a setting of the
engine).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from moldau.views.definition import ViewDefinition
from moldau.views.expressions import (
    ARITHMETIC,
    FUNCTIONS,
    Between,
    Binary,
    Call,
    Case,
    Column,
    Expression,
    Field,
    Header,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Logical,
    Negative,
    Not,
    common_kind,
    kind_of,
    walk,
)
from moldau.views.field_ranges import constraints_of, indexed_fields
from moldau.views.parser import BadExpression, Selected

WHOLE_NUMBERS_MAX: Final = 2**53
WHOLE_TEXTS_BELOW: Final = 1e21
"""Larger numbers are written with an exponent."""
SQL_CHARACTERS_MAX: Final = 1_000_000
"""All characters that are written for a query, those of a part again with whatever it is inside of."""


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT without a filter: DuckDB computes what its columns have in common once, but not in a WHERE."""

    results: str
    """What it returns for a row."""
    extraction: str
    """The fields that these use, as columns of an inner SELECT; empty if they use none."""
    columns: tuple[str, ...]
    """The columns of the table that it uses, besides `i`."""
    headers: tuple[str, ...]
    """The names of the headers that are `h0`, `h1` …"""

    def sql(self, table: str) -> str:
        return f"SELECT {self.results} FROM (SELECT *{self.extraction} FROM {table})"


@dataclass(frozen=True, slots=True)
class Queries:
    mask: Query | None
    """Returns `m`: whether a row is shown. None if all are."""
    values: Query | None
    """Returns `v`: the new value of a row. None if values stay."""


def compile_queries(definition: ViewDefinition) -> Queries:
    where, select = definition.where, definition.select
    return Queries(
        None if where is None else _compile(definition, (where,), lambda w: w.mask(where)),
        None
        if select is None
        else _compile(
            definition, tuple(each.expression for each in select), lambda w: f"{w.json_object(select)} AS v", {"value"}
        ),
    )


def _compile(
    definition: ViewDefinition,
    expressions: tuple[Expression, ...],
    write: Callable[[_Writer], str],
    columns: Set[str] = frozenset(),
) -> Query:
    parts = [part for expression in expressions for part in walk(expression)]
    headers = tuple(dict.fromkeys(part.name for part in parts if isinstance(part, Header)))
    paths = tuple(dict.fromkeys(part.path for part in parts if isinstance(part, Field)))
    used = {part.name for part in parts if isinstance(part, Column)} | columns
    if paths:
        used = used | {"value" if definition.csv_columns is None else "fields"}
    writer = _Writer(definition, headers, paths)
    return Query(write(writer), writer.extraction, tuple(sorted(used)), headers)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def json_path(path: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in path)


class _Writer:
    """Writes expressions as SQL of one kind: whoever uses an expression says which kind it needs.

    SQL repeats parts, and parts of parts, so that it may grow exponentially with the depth of an expression. Therefore
    each part is written once in each kind, and all characters are counted.
    """

    def __init__(
        self, definition: ViewDefinition, headers: tuple[str, ...], paths: tuple[tuple[str | int, ...], ...]
    ) -> None:
        self._csv_columns = definition.csv_columns
        self._headers = {name: f"h{index}" for index, name in enumerate(headers)}
        self._paths = {path: index for index, path in enumerate(paths)}
        self._written: dict[tuple[int, Kind], tuple[Expression, str]] = {}
        """By the identity of a part, which must live as long: comparing expressions would cost more than writing."""
        self._characters = 0

    def _counted(self, sql: str) -> str:
        self._characters += len(sql)
        if self._characters > SQL_CHARACTERS_MAX:
            raise BadExpression("the expression is too complex: nest less, and compare fields with numbers or texts")
        return sql

    @property
    def extraction(self) -> str:
        """All fields at once, so that each value is parsed once."""
        if not self._paths:
            return ""
        if self._csv_columns is not None:
            return ", fields AS f"
        paths = ", ".join(literal(json_path(path)) for path in self._paths)
        return f", json_extract_string(value, [{paths}]) AS f, json_extract(value, [{paths}]) AS j"

    def _field(self, path: tuple[str | int, ...]) -> str:
        if self._csv_columns is not None:
            name = path[0]
            assert isinstance(name, str), "a CSV value has no arrays"
            return f"f[{self._csv_columns.index(name) + 1}]"
        return f"f[{self._paths[path] + 1}]"

    def mask(self, where: Expression) -> str:
        """Whether a row is shown, and the fields whose ranges are indexed, in the order of `indexed_fields`."""
        columns = [f"coalesce({self.boolean(where)}, FALSE) AS m"]
        for number, key in enumerate(indexed_fields(constraints_of(where))):
            field = Field(key.path)
            columns.append(f"{self.text(field) if key.is_text else self.number(field)} AS x{number}")
        return ", ".join(columns)

    def json_object(self, selected: tuple[Selected, ...]) -> str:
        pairs = ", ".join(f"{literal(each.name)}, {self._json(each.expression)}" for each in selected)
        return f"CASE WHEN value IS NOT NULL THEN json_object({pairs}) END"

    def _json(self, expression: Expression) -> str:
        """A field keeps its JSON, whatever it is."""
        if isinstance(expression, Field) and self._csv_columns is None:
            return f"j[{self._paths[expression.path] + 1}]"
        kind = kind_of(expression)
        if kind is Kind.NUMBER:
            number = self.number(expression)
            is_whole = f"({number}) = trunc({number}) AND abs({number}) <= {WHOLE_NUMBERS_MAX}"
            return self._counted(
                f"CASE WHEN {is_whole} THEN to_json(CAST({number} AS BIGINT)) ELSE to_json({_finite(number)}) END"
            )
        return self.boolean(expression) if kind is Kind.BOOLEAN else self.text(expression)

    def as_kind(self, expression: Expression, kind: Kind) -> str:
        if kind is Kind.NUMBER:
            return self.number(expression)
        return self.boolean(expression) if kind is Kind.BOOLEAN else self.text(expression)

    def number(self, expression: Expression) -> str:
        return self._once(expression, Kind.NUMBER, self._number)

    def boolean(self, expression: Expression) -> str:
        return self._once(expression, Kind.BOOLEAN, self._boolean)

    def text(self, expression: Expression) -> str:
        return self._once(expression, Kind.TEXT, self._text)

    def _once(self, expression: Expression, kind: Kind, write: Callable[[Expression], str]) -> str:
        known = self._written.get((id(expression), kind))
        if known is None:
            known = self._written[id(expression), kind] = (expression, self._counted(write(expression)))
        return known[1]

    def _number(self, expression: Expression) -> str:
        match expression:
            case Literal(bool()):
                return f"CAST({int(bool(expression.value))} AS DOUBLE)"
            case Literal(float(value)):
                return f"CAST({value!r} AS DOUBLE)" if value < float("inf") else "CAST(NULL AS DOUBLE)"
            case Column(name) if kind_of(expression) is Kind.NUMBER:
                return f'CAST("{name}" AS DOUBLE)'
            case Negative(operand):
                return f"(-{self.number(operand)})"
            case Binary(operator, left, right) if operator in ARITHMETIC:
                return f"({self.number(left)} {operator} {self.number(right)})"
            case Call(name) if FUNCTIONS[name].returns is Kind.NUMBER:
                return "CAST(" + self._call(expression) + " AS DOUBLE)" if name != "number" else self._call(expression)
            case Call() | Case() if kind_of(expression) is Kind.NUMBER:
                return self._chosen(expression, Kind.NUMBER)
        if kind_of(expression) is Kind.BOOLEAN:
            return f"CAST({self.boolean(expression)} AS DOUBLE)"
        return _finite(f"TRY_CAST({self.text(expression)} AS DOUBLE)")

    def _boolean(self, expression: Expression) -> str:
        match expression:
            case Literal(bool(value)):
                return "TRUE" if value else "FALSE"
            case Not(operand):
                return f"(NOT {self.boolean(operand)})"
            case Logical(operator, operands):
                return "(" + f" {operator.upper()} ".join(map(self.boolean, operands)) + ")"
            case IsNull(operand):
                return f"({self._plain(operand)} IS NULL)"
            case In(operand, items):
                return "(" + " OR ".join(self._comparison("=", operand, item) for item in items) + ")"
            case Between(operand, low, high):
                return f"({self._comparison('>=', operand, low)} AND {self._comparison('<=', operand, high)})"
            case Like(operand, pattern, ignores_case):
                word = "ILIKE" if ignores_case else "LIKE"
                return f"({self.text(operand)} {word} {literal(pattern)})"
            case Binary(operator, left, right) if kind_of(expression) is Kind.BOOLEAN:
                return self._comparison(operator, left, right)
            case Call(name) if FUNCTIONS[name].returns is Kind.BOOLEAN:
                return self._call(expression)
            case Call() | Case() if kind_of(expression) is Kind.BOOLEAN:
                return self._chosen(expression, Kind.BOOLEAN)
        if kind_of(expression) is Kind.NUMBER:
            return f"({self.number(expression)} <> 0)"
        return f"(CASE {self.text(expression)} WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END)"

    def _text(self, expression: Expression) -> str:
        match expression:
            case Literal(None):
                return "CAST(NULL AS VARCHAR)"
            case Literal(str(value)):
                return literal(value)
            case Header(name):
                return self._headers[name]
            case Field(path):
                return self._field(path)
            case Column(name):
                return f'CAST("{name}" AS VARCHAR)' if kind_of(expression) is Kind.NUMBER else f'"{name}"'
            case Binary("||", left, right):
                return f"({self.text(left)} || {self.text(right)})"
            case Call(name) if FUNCTIONS[name].returns is Kind.TEXT:
                return self._call(expression)
            case Call() | Case() if kind_of(expression) not in (Kind.NUMBER, Kind.BOOLEAN):
                return self._chosen(expression, Kind.TEXT)
        if kind_of(expression) is Kind.BOOLEAN:
            return f"CAST({self.boolean(expression)} AS VARCHAR)"
        return _number_as_text(self.number(expression))

    def _plain(self, expression: Expression) -> str:
        kind = kind_of(expression)
        return self.as_kind(expression, kind)

    def _comparison(self, operator: str, left: Expression, right: Expression) -> str:
        kind = common_kind(left, right)
        if Kind.NULL in (kind_of(left), kind_of(right)):
            return "CAST(NULL AS BOOLEAN)"
        if kind is not Kind.ANY:
            return self._counted(f"({self.as_kind(left, kind)} {operator} {self.as_kind(right, kind)})")
        numbers = f"{self.number(left)} {operator} {self.number(right)}"
        return self._counted(f"coalesce({numbers}, {self.text(left)} {operator} {self.text(right)})")

    def _chosen(self, expression: Expression, kind: Kind) -> str:
        """`coalesce` and CASE, whose results all get one kind."""
        if isinstance(expression, Call):
            return "coalesce(" + ", ".join(self.as_kind(each, kind) for each in expression.arguments) + ")"
        assert isinstance(expression, Case), "only these two choose"
        whens = " ".join(
            f"WHEN {self.boolean(condition)} THEN {self.as_kind(result, kind)}"
            for condition, result in zip(expression.branches[::2], expression.branches[1::2], strict=True)
        )
        return f"(CASE {whens} ELSE {self.as_kind(expression.otherwise, kind)} END)"

    def _call(self, call: Expression) -> str:
        assert isinstance(call, Call), "only calls are called"
        arguments = [
            self.as_kind(argument, kind)
            for argument, kind in zip(call.arguments, FUNCTIONS[call.function].takes, strict=True)
        ]
        if call.function in ("number", "text"):
            return arguments[0]
        whole = [
            f"TRY_CAST(trunc({argument}) AS INTEGER)" if kind is Kind.NUMBER and call.function in _COUNTS else argument
            for argument, kind in zip(arguments, FUNCTIONS[call.function].takes, strict=True)
        ]
        return f"{call.function}({', '.join(whole)})"


_COUNTS = frozenset(("left", "right", "substr"))


def _number_as_text(number: str) -> str:
    """As in JavaScript: without a fraction if it is whole. Null if it is infinite."""
    is_whole = f"({number}) = trunc({number}) AND abs({number}) < {WHOLE_TEXTS_BELOW:g}"
    return (
        f"(CASE WHEN {is_whole} THEN CAST(CAST({number} AS HUGEINT) AS VARCHAR) "
        f"WHEN isfinite({number}) THEN CAST({number} AS VARCHAR) END)"
    )


def _finite(number: str) -> str:
    """Null instead of infinity or NaN, which are no numbers in JSON."""
    return f"(CASE WHEN isfinite({number}) THEN {number} END)"
