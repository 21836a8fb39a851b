"""In the driver: gives exceptions of the connector one sentence instead of PySpark's long text.

One function of PySpark converts exceptions of the JVM; `install`, which `moldau.spark.session` calls, wraps it for the
whole process. An error of the connector keeps its PySpark class, of which it gets a subclass named like the error; an
UnknownException becomes a PythonException or, for a missing format, an AnalysisException. Other exceptions keep class
and text. In IPython and Jupyter all of them show one sentence; the command %tb shows everything.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors.exceptions import captured
from pyspark.errors.exceptions.captured import AnalysisException, CapturedException, PythonException, UnknownException
from pyspark.logger import PySparkLogger

from moldau.spark.errors.rendering import Rendering
from moldau.spark.errors.sentences import function_error, in_short, unknown_format, worker_error

Convert = Callable[[Any], CapturedException]
MODULE: Final = "moldau.spark.errors"
NAMES: Final = {"ValueError": "ConnectorError"}
"""New names for classes that are called like a builtin one: `except ValueError` would not catch them."""
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def install() -> None:
    """Install the conversion in this process; a second call changes nothing."""
    if not hasattr(captured.convert_exception, "__wrapped__"):
        captured.convert_exception = converting(captured.convert_exception)  # type: ignore[assignment]
    for name in _LOGGERS:
        _silence(name)


def converting(convert: Convert) -> Convert:
    @functools.wraps(convert)
    def converted(java_exception: Any) -> CapturedException:
        return plain(convert(java_exception), java_exception)

    return converted


def plain(error: CapturedException, origin: Any) -> CapturedException:
    """Return the exception to raise instead of PySpark's."""
    text = str(error)
    if found := worker_error(text):
        return _with_sentence(
            _specific(error, PythonException, origin), NAMES.get(found.name, found.name), found.sentence
        )
    if sentence := unknown_format(text):
        return _with_sentence(_specific(error, AnalysisException, origin), "UnknownFormat", sentence)
    _render(error, function_error(text) or in_short(text))
    return error


def _specific(error: CapturedException, kind: type[CapturedException], origin: Any) -> CapturedException:
    """Replace PySpark's UnknownException, which prints all of Java's stack."""
    return kind(origin=origin) if isinstance(error, UnknownException) else error


def _with_sentence(error: CapturedException, name: str, sentence: str) -> CapturedException:
    kind: Any = type(error)
    error.__class__ = _kind(kind, name)
    error._desc = sentence
    _render(error, sentence)
    return error


@functools.cache
def _kind(base: Any, name: str) -> Any:
    return type(name, (base,), {"__module__": MODULE, "__str__": lambda error: error._desc})


def _render(error: CapturedException, sentence: str) -> None:
    error._render_traceback_ = Rendering(error, sentence)  # type: ignore[attr-defined]  # what IPython looks for


def _silence(name: str) -> None:
    """Turn off a logger by which PySpark prints each rejected query as several KB of JSON; the exception says the same.

    A logger that the user has configured is left alone; with the level WARNING it looks as if it were not.
    """
    existing = logging.Logger.manager.loggerDict.get(name)
    if isinstance(existing, logging.Logger):
        is_default = (
            isinstance(existing, PySparkLogger) and existing.level == logging.WARNING and len(existing.handlers) == 1
        )
        if not is_default:
            return
    PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
