"""Shortens Spark's errors about SQL to one or two lines, and finds their position in the text.

Spark's messages contain an error class in brackets, an SQLSTATE, the whole plan, the search path and advice that does
not apply to pipelines. What remains is the name, what is wrong with it, and "did you mean".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, QueryContextType
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from moldau.pipelines.problems import did_you_mean

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What Spark's Python functions raise. An exception of Java for which PySpark has no class is a Py4JJavaError."""
MESSAGE_LENGTH_MAX: Final = 300
SUGGESTIONS_MAX: Final = 3
TYPES: Final = (
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double",
    "decimal", "numeric", "string", "char", "varchar", "binary", "date", "timestamp", "timestamp_ntz", "interval",
    "array", "map", "struct", "variant",
)  # fmt: skip
_NAME: Final = re.compile(r"`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*")
_CLASS: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*: ")
_TAIL: Final = re.compile(r"\s*SQLSTATE: \w{5}.*$", re.DOTALL)
_LINE_POS: Final = re.compile(r"[(;,]\s*line (\d+),? pos (\d+)")
_DOCS: Final = re.compile(r"\s*Please, refer to '[^']*' for a fix\.")
_TRACEBACK: Final = "Traceback (most recent call last)"
_SPARK_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True, slots=True)
class SqlError:
    """`line` and `column` (from 1) are the position in the text; None if Spark does not report it."""

    message: str
    line: int | None = None
    column: int | None = None


def sql_error(error: PySparkException, text: str) -> SqlError:
    """Return what is wrong with `text`, which Spark refused with `error`."""
    line, column = _position(error, text)
    return SqlError(_condense(error), line, column)


def unresolved_routine(error: PySparkException) -> str:
    """Return the name of the function that does not exist, or "" for any other error."""
    if not (error.getCondition() or "").startswith("UNRESOLVED_ROUTINE"):
        return ""
    return (error.getMessageParameters() or {}).get("routineName", "").replace("`", "")


def sql_functions(session: SparkSession) -> list[str]:
    """Return the names of all functions that SQL can call, without operators."""
    java: Any = session._jsparkSession
    names = java.sessionState().functionRegistry().listFunction().mkString("\n").splitlines()
    return [name for name in (name.rpartition(".")[2].strip("`") for name in names) if name.isidentifier()]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence PySpark, which logs each refused query as a long line of JSON: the problem is reported anyway."""
    # PySpark's own class must create these loggers: PySpark calls them with arguments that a plain logger refuses.
    loggers = [PySparkLogger.getLogger(name) for name in _SPARK_LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def message_of(error: PySparkException | Py4JJavaError) -> str:
    """Return the error in one line, for errors that are not about an SQL text."""
    return _condense(error) if isinstance(error, PySparkException) else _shorten(_first_java_line(str(error)))


def _first_java_line(text: str) -> str:
    """Return the message of Java's exception, without its class and its stack."""
    lines = text.partition("\n: ")[2].splitlines() or text.splitlines()
    return _JAVA_CLASS.sub("", lines[0]) if lines else ""


def _condense(error: PySparkException) -> str:
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    for prefix, make_message in _MESSAGES.items():
        if condition.startswith(prefix) and (message := make_message(parameters)):
            return message
    return _shorten(str(error))


def _shorten(message: str) -> str:
    text = _DOCS.sub("", _TAIL.sub("", _CLASS.sub("", message))).strip()
    if _TRACEBACK in text:  # from our own data sources: the last line is their message
        text = text.splitlines()[-1].partition(": ")[2] or text.splitlines()[-1]
    flat = " ".join(text.split("\n\n== SQL ==")[0].split())
    return flat if len(flat) <= MESSAGE_LENGTH_MAX else flat[: MESSAGE_LENGTH_MAX - 1] + "…"


def _unresolved_column(parameters: Mapping[str, str]) -> str:
    wrong = parameters.get("objectName", "")
    names = _NAME.findall(parameters.get("proposal", ""))
    if "." not in wrong:  # suggest names without a table, too
        names = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    suggestions = sorted(names, key=lambda name: -_likeness(name, wrong))
    message = f"there is no column {wrong}"
    if not suggestions:
        return message
    one_of = "one of " if len(suggestions) > 1 else ""
    return f"{message}; did you mean {one_of}{', '.join(suggestions[:SUGGESTIONS_MAX])}?"


def _likeness(name: str, wrong: str) -> float:
    """Return how alike two names are, from 0 to 1. Their tables are not compared: they are usually right."""
    first, second = (text.rpartition(".")[2].strip("`").casefold() for text in (name, wrong))
    return SequenceMatcher(None, first, second).ratio()


def _unsupported_type(parameters: Mapping[str, str]) -> str:
    wrong = parameters.get("typeName", "").strip('"')
    return f"there is no type {wrong}{did_you_mean(wrong, TYPES)}" if wrong else ""


def _unresolved_table(parameters: Mapping[str, str]) -> str:
    return f"there is no source or step {parameters.get('relationName', '')} before this one"


def _unresolved_routine(parameters: Mapping[str, str]) -> str:
    return f"there is no function {parameters.get('routineName', '')}"


def _syntax(parameters: Mapping[str, str]) -> str:
    return f"syntax error at or near {parameters.get('error', 'here')}{parameters.get('hint', '')}"


_MESSAGES: Final[Mapping[str, Callable[[Mapping[str, str]], str]]] = {
    "UNRESOLVED_COLUMN": _unresolved_column,
    "TABLE_OR_VIEW_NOT_FOUND": _unresolved_table,
    "UNRESOLVED_ROUTINE": _unresolved_routine,
    "UNSUPPORTED_DATATYPE": _unsupported_type,
    "PARSE_SYNTAX_ERROR": _syntax,
}


def _position(error: PySparkException, text: str) -> tuple[int | None, int | None]:
    """Return line and column. Analysis errors have a query context (offsets in the text), syntax errors only line and
    position in the message."""
    for context in error.getQueryContext() or ():
        if context.contextType() != QueryContextType.SQL:
            continue
        start, fragment = context.startIndex(), context.fragment()
        # A context may refer to another text (that of a view), so check that the fragment is at its offset.
        if 0 <= start <= len(text) and text.startswith(fragment, start):
            before = text[:start]
            return before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
    match = _LINE_POS.search(str(error))
    return (int(match[1]), int(match[2]) + 1) if match else (None, None)
