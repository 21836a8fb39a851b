"""From the characters of a YAML scalar back to the characters of the file.

YAML takes indentation off, folds lines and replaces escapes, so an error at line 3, column 9 of an SQL statement
stands somewhere else in the file. A scalar is decoded here a second time, with an eye on where each character comes
from; the value itself is always the YAML parser's. No opinion on what the texts mean.

How the styles are walked:
- plain and quoted: character by character; a line break with the blanks around it is one space, and n breaks are n-1
  line feeds; '' in single quotes and \\-escapes in double quotes stand for one character.
- literal (|) and folded (>): the characters that are not blank are the same on both sides and in the same order, so
  they are paired up; blanks at the beginning of a line are counted back from the first character that is not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from moldau.pipelines.problems import LINE_END
from moldau.pipelines.spec import Place, Run, TextMap

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What YAML takes for the end of a line. An editor only knows the first three, and places are for editors."""
_BLANKS = re.compile("[ \t]*(?:\r\n|[\r\n\x85\u2028\u2029])[ \t\r\n\x85\u2028\u2029]*")
"""A line break inside a plain or quoted scalar, with all that folding takes away around it."""
_ESCAPED_BREAK = re.compile("\\\\(?:\r\n|[\r\n\x85\u2028\u2029])[ \t]*")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_INK = re.compile("[^ \t\r\n\x85\u2028\u2029]+")


@dataclass(frozen=True)
class Source:
    """The text of a file, and which character stands on which line."""

    file: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in LINE_END.finditer(self.text))]

    def line_column(self, index: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, index)
        return line, index - self._line_starts[line - 1] + 1

    def place(self, index: int) -> Place:
        line, column = self.line_column(min(index, len(self.text)))
        return Place(file=self.file, line=line, column=column)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Characters of the value from `start` on are the file's from `index` on; frozen: all stand for that one spot."""

    start: int
    index: int
    frozen: bool = False


def text_map(source: Source, value: str, start: int, end: int, style: str | None) -> TextMap:
    """The way back for a scalar whose YAML notation stands at [start, end) of the source."""
    if style in ("|", ">"):
        pieces = list(_block_pieces(value, source.text, start, end))
    else:
        decoded, pieces = _flow_pieces(source.text, start, end, style)
        if decoded != value:
            pieces = []
    runs = [Run(0, *source.line_column(start), frozen=True)] if not pieces or pieces[0].start else []
    runs += [Run(piece.start, *source.line_column(piece.index), piece.frozen) for piece in pieces]
    return TextMap(source.file, value, tuple(runs))


def _flow_pieces(raw: str, start: int, end: int, style: str | None) -> tuple[str, list[_Piece]]:
    """Decodes a plain or quoted scalar; the pieces say where its characters were."""
    at, end = (start + 1, end - 1) if style else (start, end)
    decoded: list[str] = []
    pieces = [_Piece(0, at)]
    length = 0
    while at < end:
        found, replacement = _replaced(raw, at, style)
        if found is None:
            decoded.append(raw[at])
            at += 1
            length += 1
            continue
        if replacement:
            pieces.append(_Piece(length, at, frozen=True))
            decoded.append(replacement)
            length += len(replacement)
        at = found.end()
        pieces.append(_Piece(length, at))
    return "".join(decoded), pieces


def _replaced(raw: str, at: int, style: str | None) -> tuple[re.Match[str] | None, str]:
    """The notation at a spot that stands for something else than itself, and for what."""
    char = raw[at]
    if char == "'" and style == "'":
        return re.compile("''").match(raw, at), "'"
    if char == "\\" and style == '"':
        broken = _ESCAPED_BREAK.match(raw, at)
        return (broken, "") if broken else _escape(raw, at)
    if char in " \t\r\n\x85\u2028\u2029" and (found := _BLANKS.match(raw, at)):
        return found, _folded(_BREAK.findall(found.group()))
    return None, ""


def _folded(breaks: list[str]) -> str:
    """What YAML makes of line breaks in a row. The two odd separators of Unicode stay as they are."""
    first = "" if breaks[0] not in "\u2028\u2029" else breaks[0]
    rest = "".join(one if one in "\u2028\u2029" else "\n" for one in breaks[1:])
    return first + rest or " "


_ESCAPES = {
    "0": "\0", "a": "\x07", "b": "\x08", "t": "\t", "\t": "\t", "n": "\n", "v": "\x0b", "f": "\x0c", "r": "\r",
    "e": "\x1b", " ": " ", '"': '"', "\\": "\\", "/": "/", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip


def _escape(raw: str, at: int) -> tuple[re.Match[str] | None, str]:
    found = _ESCAPE.match(raw, at)
    if found is None:
        return None, ""
    written = found.group()[1:]
    return found, chr(int(written[1:], 16)) if len(written) > 1 else _ESCAPES.get(written, written)


def _block_pieces(value: str, raw: str, start: int, end: int) -> Iterator[_Piece]:
    """Pairs the words of a block scalar with the words of its notation, which begins after the line of the | or >."""
    header = _BREAK.search(raw, start)
    behind, raw_behind = 0, header.end() if header else end
    for found in _INK.finditer(value):
        word = _INK.search(raw, raw_behind, end)
        if word is None or word.group() != found.group():
            return
        gap, raw_gap = value[behind : found.start()], raw[raw_behind : word.start()]
        if not behind or gap != raw_gap or _BREAK.search(gap):
            indent = len(gap) - 1 - max(gap.rfind(one) for one in "\n\u2028\u2029")
            yield _Piece(found.start() - indent, word.start() - indent)
        behind, raw_behind = found.end(), word.end()
