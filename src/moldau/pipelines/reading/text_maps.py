"""Maps the characters of a YAML scalar to the characters of the file.

YAML removes indentation, folds lines and replaces escapes, so an error at line 3, column 9 of an SQL statement is
elsewhere in the file. This module decodes a scalar a second time and records where each character comes from; the
value itself is always the YAML parser's.

How each style is decoded:
- plain and quoted: character by character; a line break with the blanks around it is one space, and n breaks are n-1
  line feeds; '' in single quotes and \\-escapes in double quotes are one character.
- literal (|) and folded (>): file and value have the same non-blank characters in the same order, so these are
  paired; blanks at the beginning of a line are counted back from its first non-blank character.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from moldau.pipelines.problems import LINE_END
from moldau.pipelines.spec import Place, Segment, TextMap

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""YAML's line breaks. Editors know only the first three, and LINE_END, by which places count, follows editors."""
_FOLDED_BREAK = re.compile("[ \t]*(?:\r\n|[\r\n\x85\u2028\u2029])[ \t\r\n\x85\u2028\u2029]*")
"""A line break inside a plain or quoted scalar, with the blanks around it that folding removes."""
_ESCAPED_BREAK = re.compile("\\\\(?:\r\n|[\r\n\x85\u2028\u2029])[ \t\r\n\x85\u2028\u2029]*")
"""A line break that is dropped, with the empty lines after it, which are not."""
_ITSELF = re.compile("[^ \t\r\n\x85\u2028\u2029'\\\\]+|[ \t]++(?![\r\n\x85\u2028\u2029])")
"""Characters that mean themselves in every style. Blanks are taken as a whole run: a search for a line break from each
of them would take quadratic time."""
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_WORD = re.compile("[^ \t\r\n\x85\u2028\u2029]+")


@dataclass(frozen=True)
class FileText:
    """The text of a file, and the line and column of each character."""

    file: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(line_end.end() for line_end in LINE_END.finditer(self.text))]

    def line_column(self, index: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, index)
        return line, index - self._line_starts[line - 1] + 1

    def place(self, index: int) -> Place:
        line, column = self.line_column(min(index, len(self.text)))
        return Place(file=self.file, line=line, column=column)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The value's characters from `start` on are the file's from `index` on. With `single_place`, all of them are
    at that one index."""

    start: int
    index: int
    single_place: bool = False


def text_map(file_text: FileText, value: str, start: int, end: int, style: str | None) -> TextMap:
    """Return the map of a scalar whose YAML notation is at [start, end) of the file."""
    if style in ("|", ">"):
        pieces = list(_block_pieces(value, file_text.text, start, end))
    else:
        decoded, pieces = _flow_pieces(file_text.text, start, end, style)
        if decoded != value:
            pieces = []
    # What no piece covers is at the scalar's start.
    segments = [Segment(0, *file_text.line_column(start), single_place=True)] if not pieces or pieces[0].start else []
    segments += [Segment(piece.start, *file_text.line_column(piece.index), piece.single_place) for piece in pieces]
    return TextMap(file_text.file, value, tuple(segments))


def _flow_pieces(raw: str, start: int, end: int, style: str | None) -> tuple[str, list[_Piece]]:
    """Decode a plain or quoted scalar. Return the text and the pieces that map it to the file."""
    at, end = (start + 1, end - 1) if style else (start, end)
    decoded: list[str] = []
    pieces = [_Piece(0, at)]
    length = 0
    while at < end:
        itself = _ITSELF.match(raw, at, end)
        if itself is not None:
            decoded.append(itself.group())
            at = itself.end()
            length += len(itself.group())
            continue
        match, replacement = _replacement(raw, at, style)
        if match is None:
            decoded.append(raw[at])
            at += 1
            length += 1
            continue
        if replacement:
            pieces.append(_Piece(length, at, single_place=True))
            decoded.append(replacement)
            length += len(replacement)
        at = match.end()
        pieces.append(_Piece(length, at))
    return "".join(decoded), pieces


def _replacement(raw: str, at: int, style: str | None) -> tuple[re.Match[str] | None, str]:
    """Return the notation at index `at` that YAML replaces, and its replacement; None if the character is itself."""
    char = raw[at]
    if char == "'" and style == "'":
        return re.compile("''").match(raw, at), "'"
    if char == "\\" and style == '"':
        escaped = _ESCAPED_BREAK.match(raw, at)
        return (escaped, _kept(_BREAK.findall(escaped.group())[1:])) if escaped else _escape(raw, at)
    if char in " \t\r\n\x85\u2028\u2029" and (folded := _FOLDED_BREAK.match(raw, at)):
        return folded, _fold(_BREAK.findall(folded.group()))
    return None, ""


def _fold(breaks: list[str]) -> str:
    """Return what YAML makes of consecutive line breaks. U+2028 and U+2029 stay as they are."""
    first = "" if breaks[0] not in "\u2028\u2029" else breaks[0]
    return first + _kept(breaks[1:]) or " "


def _kept(breaks: list[str]) -> str:
    """Return the line breaks of empty lines as YAML reads them."""
    return "".join(one if one in "\u2028\u2029" else "\n" for one in breaks)


_ESCAPES = {
    "0": "\0", "a": "\x07", "b": "\x08", "t": "\t", "\t": "\t", "n": "\n", "v": "\x0b", "f": "\x0c", "r": "\r",
    "e": "\x1b", " ": " ", '"': '"', "\\": "\\", "/": "/", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip


def _escape(raw: str, at: int) -> tuple[re.Match[str] | None, str]:
    match = _ESCAPE.match(raw, at)
    if match is None:
        return None, ""
    code = match.group()[1:]
    return match, chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


def _block_pieces(value: str, raw: str, start: int, end: int) -> Iterator[_Piece]:
    """Pair the words of a block scalar with those of its notation, which begins after the line of the | or >."""
    header = _BREAK.search(raw, start)
    done, raw_done = 0, header.end() if header else end
    for word in _WORD.finditer(value):
        raw_word = _WORD.search(raw, raw_done, end)
        if raw_word is None or raw_word.group() != word.group():
            return
        gap, raw_gap = value[done : word.start()], raw[raw_done : raw_word.start()]
        if not done or gap != raw_gap or _BREAK.search(gap):
            # Blanks of the value at the beginning of the line stand right before the word in the file as well.
            indent = len(gap) - 1 - max(gap.rfind(one) for one in "\n\u2028\u2029")
            yield _Piece(word.start() - indent, raw_word.start() - indent)
        done, raw_done = word.end(), raw_word.end()
