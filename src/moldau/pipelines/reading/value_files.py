"""Reads values for a pipeline from files: the content of a whole file, or one property of a properties file.

No message quotes anything of a file but names of properties: it may hold passwords.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.base.errors import MalformedData
from moldau.base.properties import decode, parse
from moldau.pipelines.problems import did_you_mean, quoted

BYTES_MAX: Final = 1 << 20


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
        properties = self.properties(path)
        if key not in properties:
            raise UnreadableValue(f"{quoted(path)} has no property {quoted(key)}{did_you_mean(key, properties)}")
        return properties[key]

    def properties(self, path: str) -> dict[str, str]:
        try:
            return {each.key: each.value for each in parse(decode(self._bytes(path)))}
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
            with (self.folder / Path(path).expanduser()).open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UnreadableValue(f"{quoted(path)} cannot be read: {why}") from None
        if len(content) > BYTES_MAX:
            raise UnreadableValue(f"{quoted(path)} is larger than {BYTES_MAX} bytes")
        return content
