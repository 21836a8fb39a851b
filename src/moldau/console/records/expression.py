"""The language of `where`: an expression about one record, such as `value.amount > 100 and key == "anna"`. Pure.

The text is parsed by Python's own parser and interpreted here, node by node; nothing else of Python can be reached.
There are no loops, no arithmetic and no repetition, so an expression costs at most its length times the record.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from moldau.console.failures import ApiError, bad_request

LENGTH_MAX: Final = 500
Evaluate = Callable[[Mapping[str, Any]], Any]
"""Computes a value from the names of a record."""

NAMES: Final = ("key", "value", "text", "headers", "partition", "offset", "timestamp", "size")
CONSTANTS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
ORDERS: Final = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}

_BACKSLASH: Final = re.compile(r"\\(.?)", re.DOTALL)


def _plain_backslash(found: re.Match[str]) -> str:
    """`"\\d"` stands for itself, as people write regular expressions; only these are escapes of Python."""
    return found[0] if found[1] in ("\\", "'", '"', "n", "t", "r") and found[1] else "\\" + found[0]


def compile_expression(text: str) -> Evaluate:
    """Return a function that tells of a record whether it matches. Raises ApiError with the column of a mistake."""
    if len(text) > LENGTH_MAX:
        raise bad_request(f"where: more than {LENGTH_MAX} characters")
    try:
        tree = ast.parse(_BACKSLASH.sub(_plain_backslash, text.strip()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        column = getattr(error, "offset", None) or 1
        raise bad_request(f"where: not an expression, near column {column}", column=column) from None
    try:
        return _compiled(tree.body)
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
            raise _mistake(node, f"{name} is not known; names are {', '.join(NAMES)}")
        case ast.Constant(value=str() | int() | float() | bool() | None as constant):
            return lambda record: constant
        case ast.List() | ast.Tuple():
            parts = [_compiled(each) for each in node.elts]
            return lambda record: [part(record) for part in parts]
    raise _mistake(node, "this is not part of the language")


def _boolean(node: ast.BoolOp) -> Evaluate:
    parts = [_compiled(each) for each in node.values]
    if isinstance(node.op, ast.And):
        return lambda record: all(part(record) for part in parts)
    return lambda record: any(part(record) for part in parts)


def _comparison(node: ast.Compare) -> Evaluate:
    operands = [_compiled(each) for each in (node.left, *node.comparators)]
    tests = [_test(node, each) for each in node.ops]

    def compare(record: Mapping[str, Any]) -> bool:
        values = [each(record) for each in operands]
        return all(test(values[nth], values[nth + 1]) for nth, test in enumerate(tests))

    return compare


def _test(node: ast.Compare, kind: ast.cmpop) -> Callable[[Any, Any], bool]:
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
    raise _mistake(node, "use == != < <= > >= or in")


def equals(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


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
    elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str | int):
        name = node.slice.value
    else:
        raise _mistake(node, "write [0] or ['name']")
    return lambda record: member(inner(record), name)


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
        raise _mistake(node, f"functions are {', '.join(FUNCTIONS)}")
    count, function = FUNCTIONS[name]
    if len(node.args) != count or any(isinstance(each, ast.Starred) for each in node.args):
        raise _mistake(node, f"{name} takes {count} argument{'s' if count > 1 else ''}")
    if name == "matches":
        return _matches(node)
    arguments = [_compiled(each) for each in node.args]
    return lambda record: function(*(each(record) for each in arguments))


def _matches(node: ast.Call) -> Evaluate:
    import re2  # a pattern that a user wrote: re2 needs linear time

    pattern = node.args[1]
    if not isinstance(pattern, ast.Constant) or not isinstance(pattern.value, str):
        raise _mistake(pattern, "the second argument of matches is a text")
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    try:
        search = re2.compile(pattern.value, options).search
    except re2.error as error:
        raise _mistake(pattern, f"not a regular expression: {error}") from None
    text = _compiled(node.args[0])

    def matches(record: Mapping[str, Any]) -> bool:
        value = text(record)
        return isinstance(value, str) and search(value) is not None

    return matches


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str | list | Mapping) else None


def _starts(whole: Any, part: Any) -> bool:
    return isinstance(whole, str) and isinstance(part, str) and whole.startswith(part)


def _ends(whole: Any, part: Any) -> bool:
    return isinstance(whole, str) and isinstance(part, str) and whole.endswith(part)


FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Any]]]] = {
    "contains": (2, contains),
    "startswith": (2, _starts),
    "endswith": (2, _ends),
    "matches": (2, contains),
    "lower": (1, _lower),
    "length": (1, _length),
}


def _mistake(node: ast.expr, message: str) -> ApiError:
    return bad_request(f"where, column {node.col_offset + 1}: {message}", column=node.col_offset + 1)
