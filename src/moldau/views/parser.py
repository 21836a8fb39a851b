"""Parses a view's expressions: a small part of SQL. What it does not know is refused with the place in the text.

    or      = and { OR and }              and     = not { AND not }          not = NOT not | compared
    compared = sum [ =|==|<>|!=|<|<=|>|>= sum | IS [NOT] NULL | [NOT] IN ( sum, … ) | [NOT] BETWEEN sum AND sum
             | [NOT] LIKE|ILIKE 'pattern' ]
    sum     = product { +|-|'||' product }  product = unary { *|/|% unary }    unary = - unary | primary
    primary = number | 'text' | TRUE | FALSE | NULL | ( or ) | function( or, … ) | CASE WHEN or THEN or … [ELSE or] END
             | path                         path    = name { .name | [number] }

A path that begins with `value.` names a field of the value, also if its name is that of a column.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from moldau.views.expressions import (
    COLUMNS,
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
    depth_of,
    kind_of,
)

TEXT_CHARACTERS_MAX: Final = 8192
DEPTH_MAX: Final = 50
TOKENS_MAX: Final = 2000
INDEX_DIGITS_MAX: Final = 9

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"[^"\\\x00-\x1f]+")
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<symbol><>|!=|==|<=|>=|\|\||[-+*/%=<>(),.\[\]])
    |(?P<end>$))""",
    re.VERBOSE,
)
_OPERATOR_SYNONYMS: Final = {"!=": "<>", "==": "="}
_WORDS: Final = frozenset(
    "and or not is null in between like ilike true false case when then else end as".split()  # noqa: SIM905
)


class BadExpression(Exception):
    """The expression is wrong; the message is one sentence for its author."""

    def __init__(self, message: str, position: int | None = None) -> None:
        """`position` is where in the text; None if it is about all of it."""
        super().__init__(message)
        self.position = position


class Token(NamedTuple):
    kind: str
    text: str
    position: int

    @property
    def word_or_symbol(self) -> str:
        """The word in lower case, or the symbol; empty for other tokens."""
        return self.text.lower() if self.kind == "name" else self.text if self.kind == "symbol" else ""


class Selected(NamedTuple):
    """A field of a view's value: `expression as name`."""

    name: str
    expression: Expression


def parse_condition(text: str) -> Expression:
    parser = _Parser(text)
    condition = parser.expression()
    parser.expect_end()
    _check_depth(condition)
    if kind_of(condition) not in (Kind.BOOLEAN, Kind.ANY, Kind.NULL):
        raise BadExpression(f"a condition is true or false, and this is a {kind_of(condition).value}: {_short(text)}")
    return condition


def parse_selection(text: str) -> tuple[Selected, ...]:
    parser = _Parser(text)
    selected = [parser.selected()]
    while parser.accept(","):
        selected.append(parser.selected())
    parser.expect_end()
    for each in selected:
        _check_depth(each.expression)
    for name, count in Counter(each.name for each in selected).items():
        if count > 1:
            raise BadExpression(f"two fields would be named {name}; rename one with AS")
    return tuple(selected)


def _check_depth(expression: Expression) -> None:
    if depth_of(expression) > DEPTH_MAX:
        raise BadExpression(f"the expression is nested more than {DEPTH_MAX} deep")


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


def _tokens(text: str) -> list[Token]:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise BadExpression(f"the expression has {len(text)} characters, at most {TEXT_CHARACTERS_MAX} are allowed")
    tokens: list[Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            rest = text[position:].lstrip()
            at = len(text) - len(rest)
            raise BadExpression(f"{_no_token(rest)} at character {at + 1}", at)
        if len(tokens) >= TOKENS_MAX:
            raise BadExpression(f"the expression has more than {TOKENS_MAX} words and symbols")
        tokens.append(Token(match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup)))
        position = match.end()
    return tokens


def _no_token(rest: str) -> str:
    """Return what is wrong with a text that does not begin with a token."""
    if rest[0] == "'":
        return "unexpected a text without its closing quote"
    if rest[0] != '"':
        return f"unexpected {rest[0]!r}"
    if '"' not in rest[1:]:
        return "unexpected a name without its closing quote"
    return 'a name in "" is empty' if rest[1] == '"' else 'a name in "" contains a backslash or a control character'


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    # --- tokens -------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def accept(self, *words_or_symbols: str) -> str | None:
        """Take the next token if it is one of these words or symbols."""
        found = self._next.word_or_symbol
        return self._take().word_or_symbol if found and found in words_or_symbols else None

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self._unexpected(f"{word.upper()} is missing")

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._unexpected("an operator or the end is missing")

    def _unexpected(self, what: str) -> BadExpression:
        token = self._next
        place = (
            "at the end" if token.kind == "end" else f"before {_short(token.text)!r} at character {token.position + 1}"
        )
        return BadExpression(f"{what} {place}", token.position)

    # --- grammar ------------------------------------------------------------------------------------------------

    def selected(self) -> Selected:
        expression = self.expression()
        if self.accept("as"):
            return Selected(self._name("a name"), expression)
        if isinstance(expression, Field) and isinstance(expression.path[-1], str):
            return Selected(expression.path[-1], expression)
        if isinstance(expression, Column):
            return Selected(expression.name, expression)
        raise self._unexpected("AS and a name are missing")

    def _name(self, what: str) -> str:
        token = self._next
        if token.kind == "quoted":
            return self._take().text[1:-1]
        if token.kind != "name":
            raise self._unexpected(f"{what} is missing")
        return self._take().text

    def expression(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadExpression(f"the expression is nested more than {DEPTH_MAX} deep")
        operands = [self._conjunction()]
        while self.accept("or"):
            operands.append(self._conjunction())
        self._depth -= 1
        return operands[0] if len(operands) == 1 else Logical("or", tuple(operands))

    def _conjunction(self) -> Expression:
        operands = [self._negation()]
        while self.accept("and"):
            operands.append(self._negation())
        return operands[0] if len(operands) == 1 else Logical("and", tuple(operands))

    def _negation(self) -> Expression:
        nots = 0
        while self.accept("not"):
            nots += 1
        compared = self._compared()
        return Not(compared) if nots % 2 else Not(Not(compared)) if nots else compared

    def _compared(self) -> Expression:
        left = self._sum()
        if operator := self.accept("=", "==", "<>", "!=", "<", "<=", ">", ">="):
            return Binary(_OPERATOR_SYNONYMS.get(operator, operator), left, self._sum())
        if self.accept("is"):
            is_negated = self.accept("not")
            self.expect("null")
            return Not(IsNull(left)) if is_negated else IsNull(left)
        is_negated = self.accept("not")
        if self.accept("in"):
            found: Expression = self._membership(left)
        elif self.accept("between"):
            low = self._sum()
            self.expect("and")
            found = Between(left, low, self._sum())
        elif word := self.accept("like", "ilike"):
            if self._next.kind != "text":
                raise self._unexpected("a pattern in quotes is missing")
            found = Like(left, _unquoted(self._take().text), word == "ilike")
        elif is_negated:
            raise self._unexpected("IN, BETWEEN or LIKE is missing")
        else:
            return left
        return Not(found) if is_negated else found

    def _membership(self, left: Expression) -> Expression:
        self.expect("(")
        items = [self._sum()]
        while self.accept(","):
            items.append(self._sum())
        self.expect(")")
        return In(left, tuple(items))

    def _sum(self) -> Expression:
        left = self._product()
        while operator := self.accept("+", "-", "||"):
            left = Binary(operator, left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._unary()
        while operator := self.accept("*", "/", "%"):
            left = Binary(operator, left, self._unary())
        return left

    def _unary(self) -> Expression:
        minuses = 0
        while self.accept("-"):
            minuses += 1
        operand = self._primary()
        return Negative(operand) if minuses % 2 else Negative(Negative(operand)) if minuses else operand

    def _primary(self) -> Expression:
        token = self._next
        if token.kind == "number":
            return Literal(float(self._take().text))
        if token.kind == "text":
            return Literal(_unquoted(self._take().text))
        if self.accept("("):
            inside = self.expression()
            self.expect(")")
            return inside
        if self.accept("case"):
            return self._case()
        if word := self.accept("true", "false", "null"):
            return Literal(None if word == "null" else word == "true")
        if (
            token.kind == "name"
            and token.word_or_symbol not in _WORDS
            and self._tokens[self._at + 1].word_or_symbol == "("
        ):
            return self._call()
        if token.kind == "quoted" or (token.kind == "name" and token.word_or_symbol not in _WORDS):
            return self._path()
        raise self._unexpected("a field, a number or a text is missing")

    def _case(self) -> Expression:
        branches: list[Expression] = []
        while self.accept("when"):
            branches.append(self.expression())
            self.expect("then")
            branches.append(self.expression())
        if not branches:
            raise self._unexpected("WHEN is missing")
        otherwise = self.expression() if self.accept("else") else Literal(None)
        self.expect("end")
        return Case(tuple(branches), otherwise)

    def _call(self) -> Expression:
        name = self._take().word_or_symbol
        self.expect("(")
        arguments = [] if self._next.word_or_symbol == ")" else [self.expression()]
        while self.accept(","):
            arguments.append(self.expression())
        self.expect(")")
        if name == "header":
            if len(arguments) != 1 or not isinstance(arguments[0], Literal) or not isinstance(arguments[0].value, str):
                raise BadExpression("header() takes one name in quotes")
            return Header(arguments[0].value)
        function = FUNCTIONS.get(name)
        if function is None:
            raise _unknown_function(name)
        wanted = len(function.takes)
        if len(arguments) != wanted and not (function.is_variadic and len(arguments) > wanted):
            raise BadExpression(f"{name}() takes {wanted} argument{'s' * (wanted > 1)}, and {len(arguments)} are given")
        return Call(name, tuple(arguments))

    def _path(self) -> Expression:
        is_quoted = self._next.kind == "quoted"
        path: list[str | int] = [self._name("a field")]
        while symbol := self.accept(".", "["):
            if symbol == ".":
                path.append(self._name("a field's name"))
                continue
            index = self._take()
            if index.kind != "number" or not index.text.isdecimal():
                raise BadExpression(f"an index in [ ] is a whole number, not {_short(index.text)!r}")
            if len(index.text) > INDEX_DIGITS_MAX:
                raise BadExpression(f"an index in [ ] has at most {INDEX_DIGITS_MAX} digits, not {len(index.text)}")
            path.append(int(index.text))
            self.expect("]")
        if "*" in path:
            raise BadExpression('a field cannot be named "*": it would mean all fields')
        first = path[0]
        if not is_quoted and isinstance(first, str) and first.lower() in COLUMNS:
            if len(path) == 1:
                return Column(first.lower())
            if first.lower() == "value":
                return Field(tuple(path[1:]))
        return Field(tuple(path))


def _unknown_function(name: str) -> BadExpression:
    from difflib import get_close_matches  # imported only for mistakes

    names = sorted((*FUNCTIONS, "header"))
    near = get_close_matches(name, names, n=1)
    suggestion = f", did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
    return BadExpression(f"there is no function {name}{suggestion}")


def _unquoted(text: str) -> str:
    inside = text[1:-1].replace("''", "'")
    if "\x00" in inside:
        raise BadExpression("a text cannot contain the character 0")
    return inside
