"""The lines of a YAML file that begin something: a key, an item of a list, or a line of a text after | or >.

Read by patterns, so that also a file can be read that is not YAML. Left out are the insides of brackets and quotes,
comments and blank lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from moldau.pipelines.problems import LINE_END

Value = Literal["nothing", "a text below", "brackets or quotes", "words"]
"""What can be behind a key."""

_LINE: Final = re.compile(r"( *)((?:-(?: +|$)){0,32})(.*)")
_KEY: Final = re.compile(r"""(?:[^\s:#'"\[\]{},&*!|>%@`-](?:[^\s:]|:(?=\S))*|"[^"]*"|'[^']*') *:(?=\s|$)\s*""")
_PROPERTIES: Final = re.compile(r"^(?:[&!]\S*(?:\s+|$))*")
_NOTHING: Final = re.compile(r"(?:#.*)?$")
_TEXT: Final = re.compile(r"[|>][-+0-9]*\s*(?:#.*)?$")
_QUOTED_OR_BRACKET: Final = re.compile(
    r"""(?<!\w)"(?:\\.|[^"\\])*"|(?<!\w)'(?:''|[^'])*'|(?P<mark>(?<!\w)["']|[\[\]{}])|(?:^|\s)\#.*"""
)
_REST_OF_QUOTE: Final = {'"': re.compile(r'(?:\\.|[^"\\])*"'), "'": re.compile(r"(?:''|[^'])*'")}


class BlockLine(NamedTuple):
    """One that begins something. Of `  - name: x` the columns are 2 and 4."""

    number: int
    columns: tuple[int, ...]
    is_item: bool
    is_key: bool
    holds: Value
    """What is behind its dashes and its key."""
    content: int
    """Where it goes on behind dashes."""

    @property
    def column(self) -> int:
        return self.columns[0]

    @property
    def opens(self) -> bool:
        """Whether its value is to come below."""
        return self.holds == "nothing"

    @property
    def is_plain(self) -> bool:
        """Whether it begins neither: a text goes on, or a ':' is missing."""
        return not (self.is_item or self.is_key)

    def moved(self, spaces: int) -> BlockLine:
        columns = tuple(column + spaces for column in self.columns)
        return self._replace(columns=columns, content=self.content + spaces)


def block_lines(text: str) -> Iterator[BlockLine]:
    text_above: int | None = None
    inside = ""
    for number, written in enumerate(LINE_END.split(text), 1):
        if inside:
            inside = _unclosed(written, inside)
            continue
        found = _LINE.match(written)
        assert found is not None
        spaces, dashes, rest = found.groups()
        is_text = text_above is not None and len(spaces) > text_above
        if not dashes and (not rest or (rest.startswith("#") and not is_text)):
            continue
        line, value = _block_line(number, len(spaces), dashes, rest)
        yield line
        if not is_text:
            text_above = line.columns[-1] if line.holds == "a text below" else None
            inside = _unclosed(value, "") if line.holds == "brackets or quotes" else ""


def _block_line(number: int, indentation: int, dashes: str, rest: str) -> tuple[BlockLine, str]:
    """The line, and what is behind its dashes and its key."""
    key = _KEY.match(rest)
    columns = [indentation + dash.start() for dash in re.finditer("-", dashes)]
    content = indentation + len(dashes)
    if key or not columns:
        columns.append(content)
    value = _PROPERTIES.sub("", rest[key.end() if key else 0 :])
    return BlockLine(number, tuple(columns), bool(dashes), key is not None, _held(value), content), value


def _held(value: str) -> Value:
    if _NOTHING.match(value):
        return "nothing"
    if _TEXT.match(value):
        return "a text below"
    return "brackets or quotes" if value[0] in "[{\"'" else "words"


def _unclosed(text: str, inside: str) -> str:
    """The brackets and the quote that are open at the end of a line, given those at its beginning."""
    at = 0
    if inside[-1:] in _REST_OF_QUOTE:
        closed = _REST_OF_QUOTE[inside[-1]].match(text)
        if closed is None:
            return inside
        inside, at = inside[:-1], closed.end()
    for found in _QUOTED_OR_BRACKET.finditer(text, at):
        mark = found.group("mark")
        if mark in ('"', "'"):
            return inside + mark
        inside = inside[:-1] if mark in ("]", "}") else inside + (mark or "")
    return inside
