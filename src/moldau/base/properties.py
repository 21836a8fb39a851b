r"""Reading and writing Java's properties format: server.properties, meta.properties, a tool's --command-config.

One `key=value` per line; the separator is `=`, `:` or white space. A line whose first visible character is `#` or `!`
is a comment; an odd number of backslashes at the end of a line joins it to the next one without its indentation.
`\t \n \r \f \uXXXX` are escapes, any other escaped character means itself. This module does not know the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData

_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_NOT_PRINTABLE_ASCII: Final = re.compile(r"[^ -~]+")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    key: str
    value: str
    line: int
    """The line of the key, counted from one."""


def decode(raw: bytes) -> str:
    """Return the text of a properties file: UTF-8, with or without a byte order mark, or else Latin-1.

    Java reads Latin-1 only. We prefer UTF-8, because editors write it today.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse(text: str) -> list[Property]:
    """Return all properties in order, with repeated keys. Raise MalformedData for an invalid escape."""
    return [_parse_property(line, number) for number, line in _logical_lines(text)]


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file. It is ASCII, which Java reads whatever the encoding of the file."""
    return "".join(f"{_escape(key, ' =:#!')}={_escape(value, '#!')}\n" for key, value in properties.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments and blank lines, continued ones joined, each with its first line's number."""
    parts: list[str] = []
    start = 0
    for number, physical_line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = physical_line.lstrip(_BLANKS)
        if not any(parts):  # also after lines that are only a backslash, as in Java
            parts = []
            if not line or line[0] in "#!":
                continue
            start = number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield start, "".join(parts)
            parts = []
    if any(parts):
        yield start, "".join(parts)


def _parse_property(line: str, number: int) -> Property:
    key_end = _match_end(_KEY, line, 0)
    value_start = _match_end(_SEPARATOR, line, key_end)
    return Property(_unescape(line[:key_end], number), _unescape(line[value_start:], number), number)


def _match_end(pattern: re.Pattern[str], line: str, start: int) -> int:
    match = pattern.match(line, start)
    assert match is not None, "both patterns match the empty string"
    return match.end()


def _unescape(text: str, number: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        code = match[1]
        if code.startswith("u"):
            if len(code) != 5:
                raise MalformedData(f"line {number}: \\u is not followed by four hexadecimal digits")
            return chr(int(code[1:], 16))
        return _CONTROL.get(code, code)

    plain = _ESCAPE.sub(replacement, text)
    if plain.isascii():
        return plain
    try:  # Java counts in UTF-16: a character outside the BMP is two escapes, a surrogate pair
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise MalformedData(f"line {number}: incomplete surrogate pair") from None


def _escape(text: str, special: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, control in _CONTROL.items():
        escaped = escaped.replace(control, f"\\{letter}")
    for character in special:
        escaped = escaped.replace(character, f"\\{character}")
    escaped = _NOT_PRINTABLE_ASCII.sub(lambda match: _utf16_escapes(match[0]), escaped)
    # A leading blank of a value would be read as part of the separator. A leading = or : would not; Java's `store`
    # escapes these everywhere.
    return f"\\{escaped}" if escaped.startswith((" ", "=", ":")) else escaped


def _utf16_escapes(text: str) -> str:
    return re.sub(r"(....)", r"\\u\1", text.encode("utf-16-be").hex().upper())
