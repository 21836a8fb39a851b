"""Finds the views that an SQL statement reads from its words alone, without Spark: to draw a pipeline, and to know what
a checkpoint depends on.

A name counts only where a table can be: after FROM, JOIN, TABLE, and after the commas of a FROM. Names in strings and
comments, columns, functions, qualified names and names that WITH defines do not count. Spark's analyzer checks the
statement later; a text that is not SQL gives some result, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+ | --[^\n]*)
  | (?P<string>[rR]'[^']*'? | [rR]"[^"]*"? | '(?:[^'\\]|\\.)*'? | "(?:[^"\\]|\\.)*"?)
  | (?P<quoted>`(?:[^`]|``)*`?)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<comment>/\*)
  | (?P<punctuation>\|>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ENDS_FROM = {
    "where", "group", "order", "having", "limit", "offset", "window", "cluster", "distribute", "sort", "qualify",
    "union", "except", "intersect", "minus", "view", "|>", ";",
}  # fmt: skip
_BEGINS_QUERY = {"select", "values", "from", "table"}
_BEFORE_TABLE = {"lateral", "stream"}


class Use(NamedTuple):
    view: str
    offset: int
    """The index of the name's first character in the SQL."""


class _Token(NamedTuple):
    kind: str
    text: str
    """Words in lower case; quoted names, of kind "name", in lower case and without their quotes."""
    offset: int


@dataclass(slots=True)
class _Frame:
    """The state inside one pair of parentheses, or at the top of the statement."""

    shadowed: frozenset[str]
    """Names that WITH defines, which therefore are not views."""
    started: bool = False
    is_query: bool = False
    expects_table: bool = False
    in_from: bool = False
    """In a FROM clause: a comma is followed by another table."""
    in_with: bool = False
    """Between WITH and its main query."""
    recursive: bool = False
    cte: str | None = None
    """In WITH: the name whose query follows."""
    body_of: str | None = None
    """The WITH name that this query defines."""


def views_used(sql: str, views: Collection[str]) -> tuple[Use, ...]:
    """Return the first use of each view, in order. Case does not matter, as in Spark."""
    uses: dict[str, Use] = {}
    for use in mentions(sql, views):
        uses.setdefault(use.view, use)
    return tuple(uses.values())


def mentions(sql: str, views: Collection[str]) -> Iterator[Use]:
    """Yield every use of each view, in order."""
    by_lower_name = {view.lower(): view for view in views}
    for token in _tables(list(_tokens(sql))):
        view = by_lower_name.get(token.text)
        if view is not None:
            yield Use(view, token.offset)


def words(sql: str) -> list[str]:
    """Return the tokens of a statement in lower case, without comments and the white space between them."""
    return [token.text for token in _tokens(sql)]


def _tokens(sql: str) -> Iterator[_Token]:
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        assert match is not None, "every character is a token"
        kind = match.lastgroup or ""
        at = _after_comment(sql, match.end()) if kind == "comment" else match.end()
        if kind == "quoted":
            yield _Token("name", match.group()[1:].removesuffix("`").replace("``", "`").lower(), match.start())
        elif kind not in ("blank", "comment"):
            yield _Token(kind, match.group().lower(), match.start())


def _after_comment(sql: str, at: int) -> int:
    """Return the end of a comment, which may contain others: /* … /* … */ … */."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(sql, at)
        if edge is None:
            return len(sql)
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at


def _tables(tokens: list[_Token]) -> Iterator[_Token]:
    """Yield the names at positions of tables that WITH does not define."""
    nothing = _Token("punctuation", "", 0)
    padded = [nothing, nothing, *tokens, nothing]
    frames = [_Frame(frozenset())]
    for earlier, before, token, after in zip(padded, padded[1:], tokens, padded[3:], strict=False):
        frame = frames[-1]
        if token.kind == "punctuation" and token.text == "(":
            frames.append(_open(frame, before, after))
        elif token.kind == "punctuation" and token.text == ")":
            if len(frames) > 1:
                _close(frames.pop(), frames[-1])
        elif frame.in_with and token.text not in _BEGINS_QUERY:
            _handle_with(frame, token, after)
        elif token.kind == "punctuation":
            _handle_punctuation(frame, token)
        elif token.kind in ("word", "name") and before.text != ".":
            is_from = token.text == "from" and not (before.text == "distinct" and earlier.text in ("is", "not"))
            if _handle_word(frame, token, after, is_from) and token.text not in frame.shadowed:
                yield token
        frame.started = True


def _open(frame: _Frame, before: _Token, after: _Token) -> _Frame:
    if frame.in_with:
        is_query = before.text in ("as", "materialized") or after.text in _BEGINS_QUERY  # else a list of columns
        body_of = frame.cte if is_query else None
        own = frozenset({body_of} if body_of and frame.recursive else ())
        return _Frame(frame.shadowed | own, body_of=body_of)
    inner = _Frame(frame.shadowed, expects_table=frame.expects_table, in_from=frame.expects_table)
    frame.expects_table = False
    return inner


def _close(inner: _Frame, outer: _Frame) -> None:
    """From here on, a name that WITH defines hides the view of that name. The query that defines it still sees the
    view, unless it is recursive."""
    if inner.body_of is not None:
        outer.shadowed |= {inner.body_of}


def _handle_with(frame: _Frame, token: _Token, after: _Token) -> None:
    if token.text == ",":
        frame.cte = None
    elif frame.cte is None and token.text == "recursive" and after.text != "as":
        frame.recursive = True
    elif frame.cte is None and token.kind in ("word", "name"):
        frame.cte = token.text


def _handle_punctuation(frame: _Frame, token: _Token) -> None:
    if token.text == ",":
        frame.expects_table = frame.in_from
    elif token.text in _ENDS_FROM:
        frame.in_from = frame.expects_table = False


def _handle_word(frame: _Frame, token: _Token, after: _Token, is_from: bool) -> bool:
    """Return whether the word names a table. A keyword changes the state of the frame instead."""
    word = token.text if token.kind == "word" else ""
    if word == "with" and not frame.started:
        frame.in_with, frame.expects_table = True, False
    elif word in ("select", "values"):
        frame.is_query, frame.in_with, frame.expects_table, frame.in_from = True, False, False, False
    elif word == "from":
        # In a function, as in extract(day from ts), no table follows.
        if is_from and (frame.is_query or frame.in_with or not frame.started):
            frame.is_query = frame.expects_table = frame.in_from = True
            frame.in_with = False
    elif word == "table" and (after.kind in ("word", "name") or after.text == "("):
        frame.expects_table, frame.in_with = True, False
    elif frame.expects_table:
        if word not in _BEFORE_TABLE:
            frame.expects_table = False
            return after.text not in (".", "(")
    elif word == "join":
        frame.expects_table = frame.in_from = True
    elif word in _ENDS_FROM:
        frame.in_from = False
    return False
