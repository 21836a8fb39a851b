"""The lines of a YAML file that begin something: a key, an item of a list, or a line of a text after | or >.

indentation.py finds the wrong one among them. Patterns find them, not the parser, so that a file with syntax errors can
be read too. Blank lines, comments, and lines inside brackets or quotes are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from moldau.pipelines.problems import LINE_END

ValueKind = Literal["nothing", "a text below", "brackets or quotes", "words"]
"""What can follow a key on its line."""

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
    """A line that begins something. The columns of `  - name: x` are 2 and 4."""

    number: int
    columns: tuple[int, ...]
    is_item: bool
    is_key: bool
    value_kind: ValueKind
    """What follows its dashes and its key."""
    content_column: int
    """The column after its dashes."""

    @property
    def column(self) -> int:
        return self.columns[0]

    @property
    def opens_block(self) -> bool:
        """Whether its value is a block on the lines below: keys or items."""
        return self.value_kind == "nothing"

    @property
    def is_plain(self) -> bool:
        """Whether it is neither item nor key: it continues a text, or its ':' is missing."""
        return not (self.is_item or self.is_key)

    def moved(self, spaces: int) -> BlockLine:
        columns = tuple(column + spaces for column in self.columns)
        return self._replace(columns=columns, content_column=self.content_column + spaces)


def block_lines(text: str) -> Iterator[BlockLine]:
    text_above: int | None = None
    inside = ""
    for number, raw_line in enumerate(LINE_END.split(text), 1):
        if inside:
            inside = _unclosed(raw_line, inside)
            continue
        match = _LINE.match(raw_line)
        assert match is not None
        spaces, dashes, rest = match.groups()
        is_text = text_above is not None and len(spaces) > text_above
        if not dashes and (not rest or (rest.startswith("#") and not is_text)):
            continue
        line, value = _block_line(number, len(spaces), dashes, rest)
        yield line
        if not is_text:
            text_above = line.columns[-1] if line.value_kind == "a text below" else None
            inside = _unclosed(value, "") if line.value_kind == "brackets or quotes" else ""


def _block_line(number: int, indentation: int, dashes: str, rest: str) -> tuple[BlockLine, str]:
    """Return the line, and the text after its dashes and its key."""
    key = _KEY.match(rest)
    columns = [indentation + dash.start() for dash in re.finditer("-", dashes)]
    content = indentation + len(dashes)
    if key or not columns:
        columns.append(content)
    value = _PROPERTIES.sub("", rest[key.end() if key else 0 :])
    return BlockLine(number, tuple(columns), bool(dashes), key is not None, _value_kind(value), content), value


def _value_kind(value: str) -> ValueKind:
    if _NOTHING.match(value):
        return "nothing"
    if _TEXT.match(value):
        return "a text below"
    return "brackets or quotes" if value[0] in "[{\"'" else "words"


def _unclosed(text: str, inside: str) -> str:
    """Return the brackets and the quote that are open at the end of a line; `inside` are those at its beginning."""
    at = 0
    if inside[-1:] in _REST_OF_QUOTE:
        closed = _REST_OF_QUOTE[inside[-1]].match(text)
        if closed is None:
            return inside
        inside, at = inside[:-1], closed.end()
    for match in _QUOTED_OR_BRACKET.finditer(text, at):
        mark = match.group("mark")
        if mark in ('"', "'"):
            return inside + mark
        inside = inside[:-1] if mark in ("]", "}") else inside + (mark or "")
    return inside
