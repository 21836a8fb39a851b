"""In the driver: gives exceptions of the connector one sentence instead of PySpark's long text.

PySpark converts exceptions of the JVM by one function, `convert_exception`. `install`, which `moldau.spark.session`
calls, replaces it in the whole process by a `ReadableConversion`. An error of the connector gets a subclass of its
PySpark class, named like the error; an UnknownException becomes a PythonException or, for a missing format, an
AnalysisException. Other exceptions keep class and text. In IPython and Jupyter all of them show one sentence; the
command %tb shows everything.
"""

from __future__ import annotations

import builtins
import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors.exceptions import captured
from pyspark.errors.exceptions.captured import AnalysisException, CapturedException, PythonException, UnknownException
from pyspark.logger import PySparkLogger

from moldau.spark.errors.rendering import Rendering
from moldau.spark.errors.sentences import function_error, in_short, no_real_time_mode, unknown_format, worker_error

Convert = Callable[[Any], CapturedException]
MODULE: Final = "moldau.spark.errors"
CONNECTOR: Final = "Connector"
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class ReadableConversion:
    """PySpark's `convert_exception`, followed by `readable_error`."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert

    def __call__(self, java_exception: Any) -> CapturedException:
        return readable_error(self._convert(java_exception), java_exception)


def install() -> None:
    """Install the conversion in this process; a second call changes nothing."""
    if not isinstance(captured.convert_exception, ReadableConversion):
        captured.convert_exception = ReadableConversion(captured.convert_exception)  # type: ignore[assignment]
    for name in _LOGGERS:
        _silence(name)


def readable_error(error: CapturedException, java_exception: Any) -> CapturedException:
    """Return the exception to raise instead of PySpark's."""
    text = str(error)
    if found := worker_error(text):
        specific = _replace_unknown(error, PythonException, java_exception)
        return _rename(specific, _class_name(found.name), found.sentence)
    if sentence := unknown_format(text):
        specific = _replace_unknown(error, AnalysisException, java_exception)
        return _rename(specific, "UnknownFormat", sentence)
    if sentence := no_real_time_mode(text):
        return _rename(error, "NoRealTimeMode", sentence)
    _set_rendering(error, function_error(text) or in_short(text))
    return error


def _class_name(name: str) -> str:
    """Return the class name for an error of a worker. One that is called like a builtin error gets another name, such
    as ConnectorTimeoutError: `except TimeoutError` would not catch it."""
    if name == "ValueError":
        return f"{CONNECTOR}Error"
    return f"{CONNECTOR}{name}" if hasattr(builtins, name) else name


def _replace_unknown(
    error: CapturedException, error_class: type[CapturedException], java_exception: Any
) -> CapturedException:
    """Return an `error_class` for an UnknownException, which prints all of Java's stack. Return other errors as is."""
    return error_class(origin=java_exception) if isinstance(error, UnknownException) else error


def _rename(error: CapturedException, name: str, sentence: str) -> CapturedException:
    """Give the error a subclass of its class with this name, and this sentence as its text."""
    error_class: Any = type(error)
    error.__class__ = _subclass(error_class, name)
    error._desc = sentence
    _set_rendering(error, sentence)
    return error


@functools.cache
def _subclass(base: Any, name: str) -> Any:
    return type(name, (base,), {"__module__": MODULE, "__str__": lambda error: error._desc})


def _set_rendering(error: CapturedException, sentence: str) -> None:
    """Set what IPython calls to show the exception."""
    error._render_traceback_ = Rendering(error, sentence)  # type: ignore[attr-defined]


def _silence(name: str) -> None:
    """Turn off a logger by which PySpark prints each rejected query as several KB of JSON; the exception says the same.

    A logger that the user has configured is left alone. One whose level the user set to PySpark's own, WARNING, cannot
    be told from an unconfigured one and is turned off.
    """
    existing = logging.Logger.manager.loggerDict.get(name)
    if isinstance(existing, logging.Logger):
        is_default = (
            isinstance(existing, PySparkLogger) and existing.level == logging.WARNING and len(existing.handlers) == 1
        )
        if not is_default:
            return
    PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
