"""The language of `where`: an expression about one record, such as `value.amount > 100 and key == "anna"`. Pure.

The text is parsed by Python's own parser and interpreted here, node by node; nothing else of Python can be reached.
There are no loops and no arithmetic (also no `"a" * 1000`), so an expression costs at most its length times the record;
regular expressions cost the size of their programs times the record, which has a bound too.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from moldau.console.failures import bad_request

LENGTH_MAX: Final = 500
PROGRAMS_MAX: Final = 1_500
"""The steps of all regular expressions of an expression, as re2 compiles them: `x{300}` has 300, `\\pL` 1,200. In the
worst case re2 tries every step at every byte, which takes seconds for each megabyte."""
Evaluate = Callable[[Mapping[str, Any]], Any]
"""Computes a value from the names of a record."""

NAMES: Final = ("key", "value", "text", "headers", "partition", "offset", "timestamp", "size")
"""`value` is the JSON of the record's value, if it is JSON; `text` is always its text."""
CONSTANTS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
ORDERS: Final = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}

_LITERAL: Final = re.compile(
    r"""([A-Za-z]*)(\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.DOTALL
)
"""A text in quotes, or in three of them, after its prefix."""
_BACKSLASH: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = "\\'\"ntr"
"""Only before these a backslash is an escape; `"\\d"` stands for itself, as people write regular expressions."""
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_BEFORE_OPERATOR: Final = frozenset(" \t\f\r\n\\)")
"""What stands between an operand and its operator."""


class _Mistake(Exception):
    """At a node, or at the operator that follows it."""

    def __init__(self, node: ast.expr, message: str, is_after: bool = False) -> None:
        super().__init__(message)
        self.node, self.is_after = node, is_after


class _Source:
    """An expression as Python's parser gets it: backslashes that stand for themselves are doubled."""

    def __init__(self, text: str) -> None:
        blanks = len(text) - len(text.lstrip())
        given = text.strip()
        doubled = {
            literal.start() + backslash.start()
            for literal in _LITERAL.finditer(given)
            if literal[1] not in ("r", "R")
            for backslash in _BACKSLASH.finditer(literal[0])
            if backslash[1] not in _ESCAPED
        }
        self.parsed = "".join("\\\\" if at in doubled else letter for at, letter in enumerate(given))
        self._columns = [blanks + at + 1 for at in range(len(given)) for _ in range(1 + (at in doubled))]

    def column_of(self, mistake: _Mistake) -> int:
        """Return the column of a mistake in the text that was given. Python counts the bytes of a line."""
        node = mistake.node
        if not mistake.is_after:
            return self._column(self._at(node.lineno, self._letters(node.lineno, node.col_offset)))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        at = self._at(node.end_lineno, self._letters(node.end_lineno, node.end_col_offset))
        while self.parsed[at : at + 1] in _BEFORE_OPERATOR:
            at += 1
        return self._column(at)

    def column_of_syntax(self, error: Exception) -> int:
        """Return the column where Python's parser got stuck. It tells no column for the end of the text."""
        if isinstance(error, SyntaxError) and error.lineno and error.offset:
            return self._column(self._at(error.lineno, error.offset - 1))
        return self._column(len(self.parsed)) if isinstance(error, SyntaxError) else 1

    def _at(self, line: int, letters: int) -> int:
        return sum(len(self._line(number)) for number in range(1, line)) + letters

    def _letters(self, line: int, count_bytes: int) -> int:
        return len(self._line(line).encode()[:count_bytes].decode())

    def _column(self, at: int) -> int:
        return self._columns[min(at, len(self._columns) - 1)] if self._columns else 1

    def _line(self, number: int) -> str:
        lines: list[str] = _LINE.findall(self.parsed)
        return lines[min(number, len(lines)) - 1]


def compile_expression(text: str) -> Evaluate:
    """Return a function that tells of a record whether it matches. Raises ApiError with the column of a mistake."""
    if len(text) > LENGTH_MAX:
        raise bad_request(f"where: more than {LENGTH_MAX} characters")
    source = _Source(text)
    try:
        tree = ast.parse(source.parsed, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        column = source.column_of_syntax(error)
        raise bad_request(f"where: not an expression, near column {column}", column=column) from None
    try:
        evaluate = _compiled(tree.body)
        _check_programs(tree.body)
        return evaluate
    except _Mistake as mistake:
        column = source.column_of(mistake)
        raise bad_request(f"where, column {column}: {mistake}", column=column) from None
    except RecursionError:
        raise bad_request("where: too deeply nested", column=1) from None


def _compiled(node: ast.expr) -> Evaluate:
    match node:
        case ast.BoolOp():
            return _boolean(node)
        case ast.UnaryOp(op=ast.Not()):
            inner = _compiled(node.operand)
            return lambda record: not inner(record)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda record: -number
        case ast.Compare():
            return _comparison(node)
        case ast.Call():
            return _call(node)
        case ast.Attribute() | ast.Subscript():
            return _member(node)
        case ast.Name(id=name) if name in CONSTANTS:
            constant = CONSTANTS[name]
            return lambda record: constant
        case ast.Name(id=name) if name in NAMES:
            return lambda record: record[name]
        case ast.Name(id=name):
            raise _Mistake(node, f"{name} is not known; names are {', '.join(NAMES)}")
        case ast.Constant(value=str() | int() | float() | bool() | None as constant):
            return lambda record: constant
        case ast.List() | ast.Tuple():
            parts = [_compiled(each) for each in node.elts]
            return lambda record: [part(record) for part in parts]
        case ast.BinOp(left=operand) | ast.IfExp(body=operand):
            raise _Mistake(operand, "this is not part of the language", is_after=True)
    raise _Mistake(node, "this is not part of the language")


def _boolean(node: ast.BoolOp) -> Evaluate:
    parts = [_compiled(each) for each in node.values]
    if isinstance(node.op, ast.And):
        return lambda record: all(part(record) for part in parts)
    return lambda record: any(part(record) for part in parts)


def _comparison(node: ast.Compare) -> Evaluate:
    operands = [_compiled(each) for each in (node.left, *node.comparators)]
    tests = [_test(left, each) for left, each in zip((node.left, *node.comparators), node.ops, strict=False)]

    def compare(record: Mapping[str, Any]) -> bool:
        values = [each(record) for each in operands]
        return all(test(values[nth], values[nth + 1]) for nth, test in enumerate(tests))

    return compare


def _test(left_operand: ast.expr, kind: ast.cmpop) -> Callable[[Any, Any], bool]:
    match kind:
        case ast.Eq():
            return equals
        case ast.NotEq():
            return lambda left, right: not equals(left, right)
        case ast.In():
            return lambda left, right: contains(right, left)
        case ast.NotIn():
            return lambda left, right: not contains(right, left)
    if type(kind) in ORDERS:
        compare = ORDERS[type(kind)]
        return lambda left, right: ordered(compare, left, right)
    raise _Mistake(left_operand, "use == != < <= > >= or in", is_after=True)


def equals(left: Any, right: Any) -> bool:
    """Values that are nested too deeply to be compared are not equal: one record must not end a search."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    try:
        return bool(left == right)
    except RecursionError:
        return False


def ordered(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    """Numbers compare with numbers and texts with texts; everything else, such as a missing field, does not match."""
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    both_numbers = isinstance(left, int | float) and isinstance(right, int | float)
    both_texts = isinstance(left, str) and isinstance(right, str)
    return compare(left, right) if both_numbers or both_texts else False


def contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, Mapping):
        return isinstance(part, str) and part in whole
    return isinstance(whole, list) and any(equals(each, part) for each in whole)


def _member(node: ast.Attribute | ast.Subscript) -> Evaluate:
    inner = _compiled(node.value)
    if isinstance(node, ast.Attribute):
        name: Any = node.attr
    else:
        name = _subscript(node)
    return lambda record: member(inner(record), name)


def _subscript(node: ast.Subscript) -> str | int:
    match node.slice:
        case ast.Constant(value=str() | int() as name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as from_the_end)):
            return -from_the_end
    raise _Mistake(node.slice, "write [0], [-1] or ['name']")


def member(value: Any, name: str | int) -> Any:
    """Return a field or an element; None if there is none."""
    if isinstance(value, Mapping) and isinstance(name, str):
        return value.get(name)
    if isinstance(value, list) and isinstance(name, int) and -len(value) <= name < len(value):
        return value[name]
    return None


def _call(node: ast.Call) -> Evaluate:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in FUNCTIONS or node.keywords:
        raise _Mistake(node, f"functions are {', '.join(FUNCTIONS)}")
    count, function = FUNCTIONS[name]
    if len(node.args) != count or any(isinstance(each, ast.Starred) for each in node.args):
        raise _Mistake(node, f"{name} takes {count} argument{'s' if count > 1 else ''}")
    if function is None:
        return _matches(node)
    arguments = [_compiled(each) for each in node.args]
    return lambda record: function(*(each(record) for each in arguments))


def _check_programs(body: ast.expr) -> None:
    calls = [each for each in ast.walk(body) if isinstance(each, ast.Call)]
    patterns = [each.args[1] for each in calls if isinstance(each.func, ast.Name) and each.func.id == "matches"]
    steps = 0
    for pattern in patterns:
        steps += _regular_expression(pattern).programsize
        if steps > PROGRAMS_MAX:
            raise _Mistake(pattern, f"regular expressions have {steps} steps so far, more than {PROGRAMS_MAX}")


def _regular_expression(pattern: ast.expr) -> Any:
    import re2  # a pattern that a user wrote: re2 needs linear time

    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        raise _Mistake(pattern, "the second argument of matches is a text")
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    try:
        return re2.compile(pattern.value, options)
    except re2.error as error:
        raise _Mistake(pattern, f"not a regular expression: {error}") from None


def _matches(node: ast.Call) -> Evaluate:
    text, search = _compiled(node.args[0]), _regular_expression(node.args[1]).search

    def matches(record: Mapping[str, Any]) -> bool:
        value = text(record)
        # re2 reads UTF-8; JSON can hold half of a surrogate pair, which UTF-8 has not.
        return isinstance(value, str) and search(value.encode(errors="replace").decode()) is not None

    return matches


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str | list | Mapping) else None


def _starts(whole: Any, part: Any) -> bool:
    return isinstance(whole, str) and isinstance(part, str) and whole.startswith(part)


def _ends(whole: Any, part: Any) -> bool:
    return isinstance(whole, str) and isinstance(part, str) and whole.endswith(part)


FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Any] | None]]] = {
    "contains": (2, contains),
    "startswith": (2, _starts),
    "endswith": (2, _ends),
    "matches": (2, None),
    "lower": (1, _lower),
    "length": (1, _length),
}
"""How many arguments each takes, and what computes it; `matches` compiles its pattern once, see `_matches`."""
