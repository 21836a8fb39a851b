"""Client properties out of the files that Kafka's tools are given."""

from __future__ import annotations

from moldau.base.errors import MalformedData
from moldau.base.properties import parse
from moldau.cli.kafka.tool import ToolFailed


def load(path: str | None) -> dict[str, str]:
    """A file in the form of java.util.Properties; no path, no properties."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return {entry.key: entry.value for entry in parse(file.read())}
    except (OSError, UnicodeDecodeError, MalformedData) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ToolFailed(f"{path}: {reason}; name a readable properties file") from error
