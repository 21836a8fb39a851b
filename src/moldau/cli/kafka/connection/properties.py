"""Reads the properties files that are passed to Kafka's tools."""

from __future__ import annotations

from moldau.base.errors import MalformedData
from moldau.base.properties import decode, parse
from moldau.cli.kafka.tool import ToolFailed


def load(path: str | None) -> dict[str, str]:
    """Return the entries of a java.util.Properties file. Return an empty dict if `path` is None."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise ToolFailed(f"{path}: {error.strerror}; name a readable properties file") from error
    try:
        return {entry.key: entry.value for entry in parse(decode(raw))}
    except MalformedData as error:
        raise ToolFailed(f"{path}: {error}; correct this line: a backslash is written as two") from error
