"""The files of a test case: records to feed into a pipeline, and what is expected to come out of it.

    tests/<case>/input/<source>.jsonl      one record a line: {"key": …, "value": …, "headers": {…}, "timestamp": …,
                                           "partition": n, "topic": …}; all but value may be left out
    tests/<case>/input/<source>.txt, .csv  each line is a value
    tests/<case>/expected/<sink>.jsonl     as the input; what is left out is not compared. For a table: its rows

A text is taken as it is, any other JSON value is written as JSON, null is a tombstone. A line that is no such record
(an object with other keys, a number, a list) is a value itself. Times are milliseconds or ISO 8601. No Spark in here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from moldau.pipelines.problems import PipelineError, quoted

CASES: Final = "tests"
INPUT: Final = "input"
EXPECTED: Final = "expected"
ENVELOPE: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "topic"})
LINE_VALUES: Final = (".txt", ".csv")
RECORDS: Final = ".jsonl"


class BadCase(PipelineError):
    """A file of a test case that cannot be used. The message names it, and the line."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    folder: Path
    inputs: Mapping[str, Path] = field(default_factory=dict)
    """By source."""
    expected: Mapping[str, Path] = field(default_factory=dict)
    """By sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int | None = None
    partition: int | None = None
    topic: str | None = None


def find_cases(pipeline: Path, wanted: Iterable[str] = ()) -> list[Case]:
    """The cases beside a pipeline's file, all or those named, by name."""
    root = pipeline.parent / CASES
    found = {folder.name: folder for folder in sorted(root.iterdir()) if _is_case(folder)} if root.is_dir() else {}
    wanted = list(wanted)
    for name in wanted:
        if name not in found:
            there = f"; there are {', '.join(found)}" if found else ""
            raise BadCase(f"there is no test case {name} in {root}{there}")
    if not found:
        raise BadCase(f"there are no test cases in {root}; make {root}/NAME/input/SOURCE.jsonl, then run with --update")
    return [_case(found[name]) for name in wanted or found]


def _is_case(folder: Path) -> bool:
    return (folder / INPUT).is_dir()


def _case(folder: Path) -> Case:
    inputs = {path.stem: path for path in sorted((folder / INPUT).iterdir()) if path.suffix and path.is_file()}
    at = folder / EXPECTED
    expected = {path.name.removesuffix(RECORDS): path for path in sorted(at.glob(f"*{RECORDS}"))} if at.is_dir() else {}
    return Case(folder.name, folder, inputs, expected)


def read_input(path: Path) -> list[InputRecord]:
    if path.suffix in LINE_VALUES:
        return [InputRecord(value=line.encode()) for _, line in _lines(path)]
    if path.suffix != RECORDS:
        raise BadCase(f"{path}: records for a topic come from {RECORDS}, {' or '.join(LINE_VALUES)} files")
    return [_input_record(path, number, line) for number, line in _lines(path)]


def read_expected(path: Path) -> list[dict[str, Any]]:
    """Envelopes: {"value": …} and whatever else is to be compared."""
    return [envelope(_json(path, number, line)) for number, line in _lines(path)]


def read_rows(path: Path) -> list[Any]:
    """The rows expected of a table."""
    return [_json(path, number, line) for number, line in _lines(path)]


def write_expected(folder: Path, name: str, lines: Iterable[Any]) -> None:
    """In an order of their own, so that a file changes only where the output does."""
    path = folder / EXPECTED / f"{name}{RECORDS}"
    path.parent.mkdir(exist_ok=True)
    texts = sorted(json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def envelope(line: Any) -> dict[str, Any]:
    """A line as a record: itself if it is one, else a record whose value it is."""
    if isinstance(line, dict) and "value" in line and line.keys() <= ENVELOPE:
        return line
    return {"value": line}


def to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _input_record(path: Path, number: int, line: str) -> InputRecord:
    told = envelope(_json(path, number, line))
    headers, partition = told.get("headers") or {}, told.get("partition")
    if not isinstance(headers, dict):
        raise BadCase(f'{path}:{number}: headers are an object of texts, such as {{"type": "login"}}')
    if partition is not None and (not isinstance(partition, int) or partition < 0):
        raise BadCase(f"{path}:{number}: {json.dumps(partition)} is no partition")
    return InputRecord(
        value=to_bytes(told["value"]),
        key=to_bytes(told.get("key")),
        headers={name: str(text) for name, text in headers.items()},
        timestamp_ms=_timestamp(path, number, told.get("timestamp")),
        partition=partition,
        topic=told.get("topic"),
    )


def _timestamp(path: Path, number: int, told: Any) -> int | None:
    if told is None or (isinstance(told, int) and told >= 0):
        return told
    try:
        moment = datetime.fromisoformat(told)
    except (TypeError, ValueError):
        raise BadCase(f"{path}:{number}: {quoted(str(told))} is no time; give milliseconds or ISO 8601") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines end with a line feed alone: `splitlines` would also cut at characters that JSON texts may hold."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadCase(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _json(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadCase(f"{path}:{number}: no JSON: {error}") from None
