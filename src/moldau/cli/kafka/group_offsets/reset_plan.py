"""New offsets as they are written on the command line of kafka-consumer-groups and in its CSV files.

Dates, durations and files are parsed as Java parses them, with the same error messages. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple

from moldau.base.durations import duration_ns
from moldau.base.ids import TopicPartition
from moldau.base.limits import INT32_MAX, INT64_MAX
from moldau.cli.kafka.tool import ToolFailed

Plan = dict[str, dict[TopicPartition, int]]
"""Groups, and the new offset of each of their partitions."""

DATE: Final = re.compile(
    r"(?P<year>\d+)-(?P<month>\d{1,2})-(?P<day>\d{1,2})T(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})"
    r"\.(?P<fraction>\d{1,9})(?P<zone>Z|[+-]\d\d(?::?\d\d)?)"
)
INSTANT_SECONDS_MAX: Final = 31_556_889_864_403_199
"""The last second of Java's Instant; the first is about as far in the past."""
UNQUOTED_LENGTH_MAX: Final = 24
QUOTED_BELOW: Final = "-"
"""Kafka's CSV writer quotes every text with a character before this one, and every long text."""
FIELDS_WITHOUT_GROUP: Final = ("topic", "partition", "offset")
FIELDS_WITH_GROUP: Final = ("group", *FIELDS_WITHOUT_GROUP)
_JACKSON: Final = "com.fasterxml.jackson"


def parse_date_time(text: str) -> int:
    """Return `YYYY-MM-DDThh:mm:ss.sss`, with or without a zone, as milliseconds since 1970; UTC without a zone."""
    parts = text.rstrip("T").split("T")
    if len(parts) < 2:
        raise ToolFailed(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    with_zone = text if re.search(r"[+\-Z]", parts[1]) else f"{text}Z"
    match = DATE.match(with_zone)
    try:
        if match is None:
            raise ValueError(with_zone)
        numbers = {name: int(match[name]) for name in ("year", "month", "day", "hour", "minute", "second")}
        moment = datetime(**numbers, tzinfo=_zone(match["zone"]))
    except (ValueError, OverflowError) as error:
        raise ToolFailed(f'java.text.ParseException: Unparseable date: "{with_zone}"') from error
    # Java parses the digits after the point as a number of milliseconds, whatever their count.
    milliseconds = int(match["fraction"])
    if milliseconds > 999:
        raise ToolFailed(f'java.text.ParseException: Unparseable date: "{with_zone}"')
    return int(moment.timestamp()) * 1000 + milliseconds


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def parse_duration(text: str, now_ms: int) -> int:
    """Return the time that lies this duration before `now_ms`, as milliseconds since 1970. The duration is written as
    in ISO 8601, such as `P1DT2H30M`."""
    try:
        total = duration_ns(text)
    except ValueError as error:
        raise ToolFailed("Text cannot be parsed to a Duration") from error
    moment = now_ms * 10**6 - total
    if abs(moment) > INSTANT_SECONDS_MAX * 10**9:
        raise ToolFailed("Instant exceeds minimum or maximum instant")
    if not -INT64_MAX - 1 <= moment // 10**6 <= INT64_MAX:
        raise ToolFailed("long overflow")
    return moment // 10**6


class Field(NamedTuple):
    text: str
    column: int
    """The column of the line where the field begins, counted from 1."""


def split_line(line: str) -> list[Field]:
    """Split a CSV line; a quoted field may contain commas, and quotes doubled."""
    fields = []
    position = 0
    while True:
        quoted = re.compile(r'\s*"((?:[^"]|"")*)"\s*(?=,|$)').match(line, position)
        plain = re.compile(r"[^,]*").match(line, position)
        match = quoted or plain
        assert match is not None
        text = quoted[1].replace('""', '"') if quoted else match[0]
        fields.append(Field(text, position + 1))
        position = match.end() + 1
        if match.end() >= len(line):
            return fields


def read_record(line: str, names: Sequence[str]) -> dict[str, str | int]:
    """Return a line's values by name. Missing fields at the end are empty or zero. Extra fields are an error, except a
    single blank one."""
    line = line.rstrip("\r")
    if not line:
        raise ToolFailed(
            f"{_JACKSON}.databind.exc.MismatchedInputException: No content to map due to end-of-input\n"
            " at [Source: (StringReader); line: UNKNOWN, column: UNKNOWN]"
        )
    fields = split_line(line)
    if len(fields) == len(names) + 1 and not fields[-1].text.strip():
        fields.pop()  # as Jackson does: a comma may end the line
    kind = "CsvRecordWithGroup" if "group" in names else "CsvRecordNoGroup"
    record: dict[str, str | int] = {name: 0 if name in ("partition", "offset") else "" for name in names}
    for number, field in enumerate(fields):
        if number >= len(names):
            raise ToolFailed(
                f"{_JACKSON}.dataformat.csv.CsvReadException: Too many entries: expected at most {len(names)}"
                f' (value #{number} ({len(field.text)} chars) "{field.text}")\n'
                f" at [Source: (StringReader); line: 1, column: {field.column}]"
            )
        name = names[number]
        record[name] = _number(field, name, kind) if name in ("partition", "offset") else field.text
    return record


def _number(field: Field, name: str, kind: str) -> int:
    text = field.text.strip()
    highest = INT32_MAX if name == "partition" else INT64_MAX
    if not text:
        return 0
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -highest - 1 <= int(text) <= highest:
        java_type = "int" if name == "partition" else "long"
        raise ToolFailed(
            f"{_JACKSON}.databind.exc.InvalidFormatException: Cannot deserialize value of type `{java_type}`"
            f' from String "{field.text}": not a valid `{java_type}` value\n'
            f" at [Source: (StringReader); line: 1, column: {field.column}] (through reference chain:"
            f' org.apache.kafka.tools.consumer.group.CsvUtils${kind}["{name}"])'
        )
    return int(text)


def parse_plan(text: str, groups: Sequence[str]) -> Plan:
    """Parse lines of `group,topic,partition,offset`. If `groups` has one group, the lines may leave out the group.

    Which of the two forms the file has is decided by its first line, as in Kafka's tool.
    """
    stripped = text.rstrip("\n")
    lines = [] if text and not stripped else stripped.split("\n")
    has_no_group = len(groups) == 1 and bool(lines) and _is_record(FIELDS_WITHOUT_GROUP, lines[0])
    plan: Plan = {}
    for line in lines:
        record = read_record(line, FIELDS_WITHOUT_GROUP if has_no_group else FIELDS_WITH_GROUP)
        group = groups[0] if has_no_group else str(record["group"])
        partition = TopicPartition(str(record["topic"]), int(record["partition"]))
        plan.setdefault(group, {})[partition] = int(record["offset"])
    return plan


def _is_record(names: Sequence[str], line: str) -> bool:
    try:
        read_record(line, names)
    except ToolFailed:
        return False
    return True


def csv_line(values: Iterable[str | int]) -> str:
    return ",".join(str(value) if isinstance(value, int) else _quoted(value) for value in values)


def _quoted(text: str) -> str:
    if len(text) <= UNQUOTED_LENGTH_MAX and all(letter >= QUOTED_BELOW for letter in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def clamp(
    offsets: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    warn: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """Return the offsets moved into the bounds of their logs; warn about each that had to be moved."""
    clamped = {}
    for partition, offset in offsets.items():
        start, end = bounds[partition]
        clamped[partition] = min(max(offset, start), end)
        if clamped[partition] != offset:
            side = "higher than latest" if offset > end else "lower than earliest"
            reason = f"New offset ({offset}) is {side} offset for topic partition {partition}."
            warn(f"{reason} Value will be set to {clamped[partition]}")
    return clamped


def parse_topic(argument: str) -> tuple[str, list[int]]:
    """Parse `topic:0,1`; raise ValueError with Kafka's message for anything else with a colon."""
    parts = argument.rstrip(":").split(":")
    if len(parts) != 2:
        raise ValueError(f"Invalid topic arg '{argument}', expected topic name and partitions")
    indexes = []
    for index in parts[1].rstrip(",").split(","):
        if not re.fullmatch(r"[+-]?[0-9]+", index) or abs(int(index)) > INT32_MAX:
            raise ValueError(f"Invalid partition '{index}' specified in topic arg '{argument}''")
        indexes.append(int(index))
    return parts[0], indexes
