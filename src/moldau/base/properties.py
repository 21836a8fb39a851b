r"""Java's properties format, read and written: server.properties, meta.properties, a tool's --command-config.

One `key=value` a line; `:` or white space separate as well as `=`. A line whose first visible character is `#` or `!`
is a comment; an odd number of backslashes at its end joins a line to the next, less that one's indentation. `\t \n \r
\f \uXXXX` are escapes, any other escaped character stands for itself. What the keys mean does not enter here.
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
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    key: str
    value: str
    line: int
    """The line the key stands on, counted from one."""


def parse(text: str) -> list[Property]:
    """Every property in its order, repeated keys included; MalformedData for an escape that is none."""
    return [_property(line, number) for number, line in _logical_lines(text)]


def render(properties: Mapping[str, str]) -> str:
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value, '#!')}\n" for key, value in properties.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Comments and blank lines left out, continued lines joined, each with the number of its first line."""
    parts: list[str] = []
    start = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if continued else line)
        if not continued:
            yield start, "".join(parts)
            parts = []
    if any(parts):
        yield start, "".join(parts)


def _property(line: str, number: int) -> Property:
    key_end = _match_end(_KEY, line, 0)
    value_start = _match_end(_SEPARATOR, line, key_end)
    return Property(_unescaped(line[:key_end], number), _unescaped(line[value_start:], number), number)


def _match_end(pattern: re.Pattern[str], line: str, start: int) -> int:
    found = pattern.match(line, start)
    assert found is not None, "both patterns match the empty string"
    return found.end()


def _unescaped(text: str, number: int) -> str:
    def stand_in(found: re.Match[str]) -> str:
        code = found[1]
        if code.startswith("u"):
            if len(code) != 5:
                raise MalformedData(f"line {number}: \\u is not followed by four hexadecimal digits")
            return chr(int(code[1:], 16))
        return _CONTROL.get(code, code)

    plain = _ESCAPE.sub(stand_in, text)
    if plain.isascii():
        return plain
    try:  # Java counts in UTF-16: a character beyond it is two escapes
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise MalformedData(f"line {number}: half of a surrogate pair stands alone") from None


def _escaped(text: str, special: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, control in _CONTROL.items():
        escaped = escaped.replace(control, f"\\{letter}")
    for character in special:
        escaped = escaped.replace(character, f"\\{character}")
    return f"\\{escaped}" if escaped.startswith((" ", "=", ":")) else escaped
