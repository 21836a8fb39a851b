"""Reads the properties files that are passed to Kafka's tools."""

from __future__ import annotations

from moldau.base.errors import MalformedData
from moldau.base.properties import parse
from moldau.cli.kafka.tool import ToolFailed


def load(path: str | None) -> dict[str, str]:
    """Return the entries of a java.util.Properties file. Return an empty dict if `path` is None."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return {entry.key: entry.value for entry in parse(file.read())}
    except (OSError, UnicodeDecodeError, MalformedData) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ToolFailed(f"{path}: {reason}; name a readable properties file") from error
