"""JSON files for Kafka's tools: parsing, and access to fields with Kafka's error messages.

Each tool defines what the fields mean.
"""

from __future__ import annotations

import json
from typing import Any

from moldau.cli.kafka.tool import ToolFailed


class JsonMappingError(ToolFailed):
    """Valid JSON of an unexpected structure: Kafka's JsonMappingException."""


def read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailed(f"Unable to read file {path}") from error


def parse(text: str) -> Any:
    """Parse JSON; raise ValueError with line and column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}") from error


def as_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise JsonMappingError(f"Expected JSON object, received {compact_json(value)}")


def as_array(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise JsonMappingError(f"Expected JSON array, received {compact_json(value)}")


def field(fields: dict[str, Any], name: str) -> Any:
    if name in fields:
        return fields[name]
    raise JsonMappingError(f"No such field exists: `{name}`")


def integer(value: Any) -> int:
    return _number(value, 32, "Integer")


def long(value: Any) -> int:
    return _number(value, 64, "Long")


def _number(value: Any, bits: int, java_type: str) -> int:
    # To Python, `true` is an int too.
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    raise JsonMappingError(f"Expected `{java_type}` value, received {compact_json(value)}")


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise JsonMappingError(f"Expected `String` value, received {compact_json(value)}")


def integers(value: Any) -> list[int]:
    return [integer(item) for item in _list(value)]


def texts(value: Any) -> list[str]:
    return [text(item) for item in _list(value)]


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise JsonMappingError(f"Expected `JSON array` value, received {compact_json(value)}")


def compact_json(value: Any) -> str:
    """Return JSON as Kafka's tools write it: without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
