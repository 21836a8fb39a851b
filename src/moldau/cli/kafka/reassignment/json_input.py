"""JSON that people write for Kafka's tools: read, and looked into with Kafka's words for what is not as it should be.

What the fields mean is each tool's.
"""

from __future__ import annotations

import json
from typing import Any, Final

from moldau.cli.kafka.tool import ToolFailed

INT_MAX: Final = 2**31 - 1


class MisshapenJson(ToolFailed):
    """JSON, but not of the shape that was expected: what Kafka calls a JsonMappingException."""


def read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailed(f"Unable to read file {path}") from error


def parse(text: str) -> Any:
    """Raises ValueError, with the place in its words."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from error


def as_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise MisshapenJson(f"Expected JSON object, received {shown(value)}")


def as_array(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise MisshapenJson(f"Expected JSON array, received {shown(value)}")


def field(found: dict[str, Any], name: str) -> Any:
    if name in found:
        return found[name]
    raise MisshapenJson(f"No such field exists: `{name}`")


def integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and -INT_MAX - 1 <= value <= INT_MAX:
        return value
    raise MisshapenJson(f"Expected `Integer` value, received {shown(value)}")


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise MisshapenJson(f"Expected `String` value, received {shown(value)}")


def integers(value: Any) -> list[int]:
    return [integer(each) for each in _list(value)]


def texts(value: Any) -> list[str]:
    return [text(each) for each in _list(value)]


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise MisshapenJson(f"Expected `JSON array` value, received {shown(value)}")


def shown(value: Any) -> str:
    """JSON as Kafka's tools write it: no spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
