"""Reads values for a pipeline from files: the content of a whole file, or one property of a properties file.

No message quotes anything of a file but names of properties: it may hold passwords.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.base.errors import MalformedData
from moldau.base.properties import decode, parse
from moldau.pipelines.problems import did_you_mean, quoted
from moldau.pipelines.reading.file_bytes import read_bytes

BYTES_MAX: Final = 1 << 20
_PROPERTY_NAME: Final = re.compile(r"^[ \t]*([A-Za-z0-9._-]+)[ \t]*[=:][ \t]*[^\s=:]", re.MULTILINE)
"""A name that a message may suggest. A word without a value may be a secret: the whole file, or a line of base64."""


class UnreadableValue(Exception):
    """Why a file does not give the value, in one line."""


@dataclass(frozen=True, slots=True)
class ValueFiles:
    """Files by paths as they are written in the pipeline's file, relative to its folder."""

    folder: Path

    def value(self, written: str) -> str:
        """Return what ${file:WRITTEN} stands for: PATH is the file's content without the last line end, PATH:KEY one
        property of it, as with Kafka's FileConfigProvider."""
        path, colon, key = written.rpartition(":")
        if not colon:
            return self._text(written)
        text = decode(self._bytes(path))
        properties = self._parsed(path, text)
        if key not in properties:
            suggestion = did_you_mean(key, _PROPERTY_NAME.findall(text))
            raise UnreadableValue(f"{quoted(path)} has no property {quoted(key)}{suggestion}")
        return properties[key]

    def properties(self, path: str) -> dict[str, str]:
        return self._parsed(path, decode(self._bytes(path)))

    def _parsed(self, path: str, text: str) -> dict[str, str]:
        try:
            return {each.key: each.value for each in parse(text)}
        except MalformedData as malformed:
            raise UnreadableValue(f"{quoted(path)}: {malformed}") from None

    def _text(self, path: str) -> str:
        try:
            return self._bytes(path).decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise UnreadableValue(f"{quoted(path)} is not UTF-8") from None

    def _bytes(self, path: str) -> bytes:
        if not path.strip():
            raise UnreadableValue("'${file:…}' needs the path of a file")
        try:
            content = read_bytes(self.folder / Path(path).expanduser(), BYTES_MAX + 1)
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UnreadableValue(f"{quoted(path)} cannot be read: {why}") from None
        if len(content) > BYTES_MAX:
            raise UnreadableValue(f"{quoted(path)} is larger than {BYTES_MAX} bytes")
        return content
