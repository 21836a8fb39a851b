"""Extracts the sentence from Spark's error text. Pure: no Spark is imported here.

Spark wraps a reason in layers: the failed query, an error class in brackets, an SQLSTATE, the plan, advice. An error
that our data sources raised without a trace (`untraced`) appears in it as `module.Name: sentence`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from moldau.spark.option_values import did_you_mean

LENGTH_MAX: Final = 400
TRACEBACK: Final = "Traceback (most recent call last):"
_WORKER_ERROR: Final = re.compile(
    r"(?:Failed (?:to|when)\b[^:\n]*\bPython (?:streaming )?data source[^:\n]*|thrown from the Python worker):\s+"
    r"(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.*)"
)
_FORMAT: Final = re.compile(r"\[\w*DATA_SOURCE_NOT_\w+\] Failed to find (?:the )?data source: ([^\s]+)\.\s")
_REAL_TIME: Final = re.compile(
    r"\[STREAMING_REAL_TIME_MODE\.(?:OPERATOR_OR_SINK_NOT_IN_ALLOWLIST|INPUT_STREAM_NOT_SUPPORTED)\][^\n]*\.v2\.python\.Python"
    r"|^Sink moldau(?:-lake)? does not support async progress tracking"
)
REAL_TIME: Final = (
    "Real-time mode and async progress tracking are not for Python data sources such as moldau: leave the trigger out,"
    " so that each micro-batch begins when the last is done, or use Spark's own Kafka connector (docs/spark.md)"
)
_STREAM: Final = re.compile(r"^.*?\bterminated with exception: ", re.DOTALL)
_CLASS: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_TAIL: Final = re.compile(r"\s*(?:SQLSTATE: \w{5}|\n\n?== SQL|\nJVM stacktrace:).*$", re.DOTALL)
_LAKE: Final = {"delta": "Delta", "iceberg": "Iceberg"}
_OTHERS: Final = ("moldau", "moldau-lake", "parquet", "json", "csv", "text", "orc", "avro", "jdbc", "rate", "socket")


class WorkerError(NamedTuple):
    """An error that one of our data sources raised in a Python worker."""

    name: str
    """The name of the exception's class."""
    sentence: str


def worker_error(text: str) -> WorkerError | None:
    """Return the error that is in the text without a traceback, or None if the text has no such error."""
    found = _WORKER_ERROR.search(text)
    return WorkerError(found[1], found[2].strip()) if found else None


def function_error(text: str) -> str | None:
    """Return the traceback of a user's function that failed in a task, or None if the text has no such traceback."""
    start = text.find(TRACEBACK)
    return None if start < 0 else _TAIL.sub("", text[start:]).strip()


def unknown_format(text: str) -> str | None:
    """Return a sentence about a format that Spark does not find, or None if the text is about another error."""
    found = _FORMAT.search(text)
    if found is None:
        return None
    name = found[1]
    return f"There is no format {name} in this session{_instead_of(name)}"


def _instead_of(name: str) -> str:
    if name.lower() == "kafka":
        return ': format("moldau") takes the same options, with Moldau and with any other Kafka (docs/spark.md)'
    if kind := _LAKE.get(name.lower()):
        return (
            f': format("moldau-lake") with option("format", "{name.lower()}") reads and writes {kind} tables'
            " (docs/tables.md)"
        )
    return did_you_mean(name, _OTHERS, {}) or f"; it has {', '.join(_OTHERS)}"


def no_real_time_mode(text: str) -> str | None:
    """Return a sentence if the text says that one of our formats cannot be used in real-time mode; else None."""
    return REAL_TIME if _REAL_TIME.search(text) else None


def in_short(text: str) -> str:
    """Spark's text in one line, without error class, SQLSTATE, plan and stack."""
    inner = _CLASS.sub("", _STREAM.sub("", text, count=1))
    flat = " ".join(_TAIL.sub("", inner).split())
    return flat if len(flat) <= LENGTH_MAX else flat[: LENGTH_MAX - 1] + "…"
