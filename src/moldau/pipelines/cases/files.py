"""The files of a test case: input records of a pipeline, and its expected output.

    tests/<case>/input/<source>.jsonl      one record a line: {"key": …, "value": …, "headers": {…}, "timestamp": …,
                                           "partition": n, "topic": …}; only value is required
    tests/<case>/input/<source>.txt, .csv  each line is a value
    tests/<case>/expected/<sink>.jsonl     as the input; missing parts are not compared. For a table: its rows

A string is used as it is, any other JSON value is written as JSON, null stays null (a value is then a tombstone). A
line that is not such a record (an object with other keys, a number, a list) is itself a value. An object with one of
these keys and a misspelt other one is refused. Times are milliseconds or ISO 8601. A record without a timestamp has the
one of the record before it, the first of a file FIRST_TIMESTAMP_MS: so every run of a test has the same output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeGuard

from moldau.base.topic_names import topic_name_problem
from moldau.pipelines.problems import PipelineError, quoted

CASES: Final = "tests"
INPUT: Final = "input"
EXPECTED: Final = "expected"
ENVELOPE: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "topic"})
NEARLY: Final = 0.8
"""How alike a misspelt key is: `valeu` is like value, `time` not like timestamp."""
PARTITIONS_MAX: Final = (1 << 31) - 1
"""As many as Kafka can count."""
TIMESTAMP_MS_END: Final = 253_402_300_800_000
"""The start of the year 10000, the end of Spark's timestamps. Kafka has none before 1970."""
FIRST_TIMESTAMP_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
LINE_VALUES: Final = (".txt", ".csv")
RECORDS: Final = ".jsonl"


class BadCase(PipelineError):
    """A file of a test case that cannot be used. The message names the file and the line."""


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
    headers: Mapping[str, bytes | None] = field(default_factory=dict)
    timestamp_ms: int = FIRST_TIMESTAMP_MS
    partition: int | None = None
    topic: str | None = None


def find_cases(pipeline: Path, names: Iterable[str] = ()) -> list[Case]:
    """Return the cases beside a pipeline's file: those with these names, or all in the order of their names."""
    root = pipeline.parent / CASES
    folders = {folder.name: folder for folder in sorted(root.iterdir()) if _is_case(folder)} if root.is_dir() else {}
    names = list(names)
    for name in names:
        if name not in folders:
            others = f"; there are {', '.join(folders)}" if folders else ""
            raise BadCase(f"there is no test case {name} in {root}{others}")
    if not folders:
        raise BadCase(f"there are no test cases in {root}; make {root}/NAME/input/SOURCE.jsonl, then run with --update")
    return [_case(folders[name]) for name in names or folders]


def _is_case(folder: Path) -> bool:
    return (folder / INPUT).is_dir()


def _case(folder: Path) -> Case:
    inputs = {path.stem: path for path in _files(folder / INPUT) if path.suffix}
    expected = {path.stem: path for path in _files(folder / EXPECTED) if path.suffix == RECORDS}
    return Case(folder.name, folder, inputs, expected)


def check_inputs(case: Case) -> None:
    """Raise BadCase if a source has two input files."""
    for path in _files(case.folder / INPUT):
        chosen = case.inputs.get(path.stem, path)
        if path.suffix and path != chosen:
            names = f"{path.name} and {chosen.name}"
            raise BadCase(f"{case.folder / INPUT}: {names} are both for source {path.stem}; keep one of them")


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder, without those that editors keep beside a file that is open, or was before."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.is_file() and path.name[0] not in ".#" and path.name[-1] != "~"]


def read_input(path: Path) -> list[InputRecord]:
    if path.suffix in LINE_VALUES:
        return [InputRecord(value=line.encode()) for _, line in _lines(path)]
    if path.suffix != RECORDS:
        raise BadCase(f"{path}: records for a topic come from {RECORDS}, {' or '.join(LINE_VALUES)} files")
    records: list[InputRecord] = []
    for number, line in _lines(path):
        timestamp_ms = records[-1].timestamp_ms if records else FIRST_TIMESTAMP_MS
        records.append(_input_record(path, number, line, timestamp_ms))
    return records


def read_expected(path: Path) -> list[dict[str, Any]]:
    """Return envelopes: {"value": …} and the other parts to compare."""
    return [_envelope(path, number, line) for number, line in _lines(path)]


def read_rows(path: Path) -> list[Any]:
    """Return the expected rows of a table."""
    return [_json(path, number, line) for number, line in _lines(path)]


def write_expected(folder: Path, name: str, lines: Iterable[Any]) -> None:
    """Write the lines sorted, so that a file changes only where the output does."""
    path = folder / EXPECTED / f"{name}{RECORDS}"
    path.parent.mkdir(exist_ok=True)
    texts = sorted(json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def envelope(line: Any) -> dict[str, Any]:
    """Return a line as a record: the line itself if it is one, else a record with the line as its value."""
    if isinstance(line, dict) and "value" in line and line.keys() <= ENVELOPE:
        return line
    return {"value": line}


def misspelt_key(line: Any) -> tuple[str, str] | None:
    """Return (misspelt key, the key of a record that was probably meant); None if the object has no key of a record, or
    none of its other keys is like one: then it is a value."""
    if not isinstance(line, dict) or ENVELOPE.isdisjoint(line):
        return None
    for key in line:
        if key not in ENVELOPE and (
            near := get_close_matches(key.casefold(), ENVELOPE - line.keys(), n=1, cutoff=NEARLY)
        ):
            return key, near[0]
    return None


def _envelope(path: Path, number: int, line: str) -> dict[str, Any]:
    content = _json(path, number, line)
    if misspelt := misspelt_key(content):
        raise BadCase(
            f"{path}:{number}: unknown key {misspelt[0]}, did you mean {misspelt[1]}?"
            ' If the whole line is a value, write it as {"value": …}'
        )
    record = envelope(content)
    return {**record, "headers": _headers(path, number, record["headers"])} if record.get("headers") else record


def _headers(path: Path, number: int, headers: Any) -> dict[str, Any]:
    """Return headers by name. They may also be a list, as `moldau consume --json` prints them."""
    if isinstance(headers, dict):
        return headers
    if not isinstance(headers, list) or not all(isinstance(each, dict) and "key" in each for each in headers):
        raise BadCase(
            f'{path}:{number}: headers are an object of strings, such as {{"type": "login"}},'
            ' or a list, such as [{"key": "type", "value": "login"}]'
        )
    by_name = {str(each["key"]): each.get("value") for each in headers}
    if len(by_name) < len(headers):
        raise BadCase(f"{path}:{number}: a test cannot have two headers of one name")
    return by_name


def to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _input_record(path: Path, number: int, line: str, default_timestamp_ms: int) -> InputRecord:
    record = _envelope(path, number, line)
    headers, partition = record.get("headers") or {}, record.get("partition")
    if partition is not None and not (_is_natural(partition) and partition < PARTITIONS_MAX):
        raise BadCase(f"{path}:{number}: {json.dumps(partition)} is not a partition")
    return InputRecord(
        value=to_bytes(record["value"]),
        key=to_bytes(record.get("key")),
        headers={name: to_bytes(value) for name, value in headers.items()},
        timestamp_ms=_timestamp(path, number, record.get("timestamp"), default_timestamp_ms),
        partition=partition,
        topic=_topic(path, number, record.get("topic")),
    )


def _topic(path: Path, number: int, value: Any) -> str | None:
    if value is None:
        return None
    problem = topic_name_problem(value) if isinstance(value, str) else json.dumps(value)
    if problem is not None:
        raise BadCase(f"{path}:{number}: not a topic's name: {problem}")
    return str(value)


def _is_natural(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _timestamp(path: Path, number: int, value: Any, default_ms: int) -> int:
    if value is None:
        return default_ms
    text = quoted(value) if isinstance(value, str) else json.dumps(value)
    timestamp_ms = value
    if not _is_natural(value):
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise BadCase(f"{path}:{number}: {text} is not a time; give milliseconds or ISO 8601") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        timestamp_ms = round(moment.timestamp() * 1000)
    if not 0 <= timestamp_ms < TIMESTAMP_MS_END:
        raise BadCase(f"{path}:{number}: {text} is not in the years 1970 to 9999")
    return int(timestamp_ms)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return numbered lines. Only a line feed ends a line: `splitlines` would also split at characters inside JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadCase(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _json(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadCase(f"{path}:{number}: not valid JSON: {error}") from None
