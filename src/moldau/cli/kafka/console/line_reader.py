"""Parses lines of standard input into records, by kafka-console-producer's reader properties: keys, headers, nulls.

A line is `headers<TAB>key<TAB>value`, where each part has to be enabled by a property. All work is on bytes; nothing
is decoded, so any encoding passes through. Pure: no client is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from moldau.cli.kafka.tool import ToolFailed

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers | None


@dataclass(frozen=True, slots=True)
class LineReader:
    """The reader's properties, validated."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def from_properties(cls, props: Mapping[str, str]) -> LineReader:
        def flag(name: str) -> bool:
            return props.get(name, "").strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return props.get(name, default).encode()

        reader = cls(
            parse_key=flag("parse.key"),
            parse_headers=flag("parse.headers"),
            ignore_error=flag("ignore.error"),
            key_separator=text("key.separator", "\t"),
            headers_delimiter=text("headers.delimiter", "\t"),
            headers_separator=text("headers.separator", ","),
            headers_key_separator=text("headers.key.separator", ":"),
            null_marker=text("null.marker", "") if "null.marker" in props else None,
        )
        reader._check()
        return reader

    def _check(self) -> None:
        names = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        pairs = [("headers.delimiter", "headers.separator"), ("headers.delimiter", "headers.key.separator")]
        pairs.append(("headers.separator", "headers.key.separator"))
        for name, other in pairs:
            if names[name] == names[other]:
                raise ToolFailed(f"{name} and {other} may not be equal")
        try:
            re.compile(self.headers_separator)
        except re.error as error:
            raise ToolFailed(f"headers.separator: not a regular expression, {error}") from error
        for name, value in {"key.separator": self.key_separator, **names}.items():
            if value == self.null_marker:
                raise ToolFailed(f"null.marker and {name} may not be equal")

    @property
    def plain(self) -> bool:
        """Whether a line is just a value: the fast path for millions of lines."""
        return not self.parse_key and not self.parse_headers and self.null_marker is None

    def records(self, lines: Iterable[bytes]) -> Iterator[Record]:
        for number, line in enumerate(lines, 1):
            yield self.record(without_line_end(line), number)

    def record(self, line: bytes, number: int) -> Record:
        headers, rest = self._cut(self.parse_headers, line, self.headers_delimiter, "headers delimiter", line, number)
        key, value = self._cut(self.parse_key, rest, self.key_separator, "key separator", line, number)
        return Record(self._unless_null(key), self._unless_null(value), self._headers(headers, number))

    def _cut(
        self, enabled: bool, rest: bytes, separator: bytes, separator_name: str, line: bytes, number: int
    ) -> tuple[bytes | None, bytes]:
        if not enabled:
            return None, rest
        position = rest.find(separator)
        if position >= 0:
            return rest[:position], rest[position + len(separator) :]
        if self.ignore_error:
            return None, rest
        raise ToolFailed(f"No {separator_name} found on line number {number}: '{line.decode(errors='replace')}'")

    def _unless_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part

    def _headers(self, text: bytes | None, number: int) -> Headers | None:
        """Parse headers. Like String.split() in Java: the separator is a regular expression, empty ends are dropped."""
        if text is None or text == self.null_marker:
            return None
        pairs = re.split(self.headers_separator, text)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()
        return [self._header(pair, number) for pair in pairs]

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        name, separator, value = pair.partition(self.headers_key_separator)
        name_text = name.decode(errors="replace")
        if not separator:
            if self.ignore_error:
                return name_text, None
            raise ToolFailed(f"No header key separator found in pair '{name_text}' on line number {number}")
        if name == self.null_marker:
            raise ToolFailed(f"Header keys should not be equal to the null marker '{name_text}' as they can't be null")
        return name_text, self._unless_null(value)


def without_line_end(line: bytes) -> bytes:
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith(b"\n") else line
