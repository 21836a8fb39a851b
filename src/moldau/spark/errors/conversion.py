"""In the driver: what the JVM reports becomes an exception of PySpark's, and here one whose text is the sentence.

PySpark has one function that makes exceptions out of the JVM's; `install` puts ours around it, in this process and for
sessions of `moldau.spark.session`. The exceptions stay what they are for `except`: those that carry an error of ours
become subclasses of themselves, named as that error and saying what it says; a format that is not there becomes an
AnalysisException. In IPython and Jupyter all of them are shown as one sentence and a place, and whole after %tb.
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
"""Another name for a class that Python has too: ours would not be caught as that."""
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def install() -> None:
    """Once for a process; again changes nothing."""
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
    """The exception to raise in the place of PySpark's."""
    text = str(error)
    if found := worker_error(text):
        return _saying(_known(error, PythonException, origin), NAMES.get(found.name, found.name), found.sentence)
    if sentence := unknown_format(text):
        return _saying(_known(error, AnalysisException, origin), "UnknownFormat", sentence)
    _render(error, function_error(text) or in_short(text))
    return error


def _known(error: CapturedException, kind: type[CapturedException], origin: Any) -> CapturedException:
    """PySpark raises what it does not know as an error of the gateway, with all of Java's stack."""
    return kind(origin=origin) if isinstance(error, UnknownException) else error


def _saying(error: CapturedException, name: str, sentence: str) -> CapturedException:
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
    """Spark's Python side prints each refused query as a line of JSON of several KB; the exception says it too.

    Not if somebody has set the logger up before. Afterwards, setLevel makes it speak.
    """
    there = logging.Logger.manager.loggerDict.get(name)
    if isinstance(there, logging.Logger):
        as_made = isinstance(there, PySparkLogger) and there.level == logging.WARNING and len(there.handlers) == 1
        if not as_made:
            return
    PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
