"""Turns the error of a failed query into one line, and decides whether a retry may help.

Spark wraps the reason in layers: its own name for the failed query, the task that failed, the traceback of a Python
worker, the JVM's stack. The reason is the innermost of these. Works on text only, without Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final

from moldau.spark.errors.sentences import worker_error

MESSAGE_LENGTH_MAX: Final = 400


class Kind(Enum):
    RETRIABLE = "retriable"
    """Caused by the environment and likely temporary: an unreachable broker, an executor that died."""
    LASTING = "lasting"
    """A retry will fail in the same way: wrong SQL, lost data, a topic that does not exist."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: Kind
    message: str

    @property
    def is_slowness(self) -> bool:
        """Whether Spark gave up on a Python process that took too long to start."""
        return "failed to connect back" in self.message


RETRIABLE: Final = re.compile(
    r"\b(?:Unreachable|(?:Connector)?(?:ConnectionError|ConnectionRefusedError|ConnectionResetError"
    r"|ConnectionAbortedError|BrokenPipeError|TimeoutError)|java\.net\.\w+|java\.util\.concurrent\.TimeoutException|ExecutorLostFailure"
    r"|executor .* exited|worker lost)\b|_NOT_AVAILABLE\b|\bNOT_LEADER|\bREQUEST_TIMED_OUT\b|\bNETWORK_EXCEPTION\b"
    r"|\bNOT_ENOUGH_REPLICAS|\bNOT_CONTROLLER\b|\bNOT_COORDINATOR\b|_LOAD_IN_PROGRESS\b|has no leader"
    r"|\bCONCURRENT_TRANSACTIONS\b|\bUNSTABLE_OFFSET_COMMIT\b|\bKAFKA_STORAGE_ERROR\b|_LEADER_EPOCH\b"
    r"|\bFETCH_SESSION_ID_NOT_FOUND\b"
    r"|\bDatabaseUnavailable\b|Python worker failed to connect back|Python worker exited unexpectedly",
    re.IGNORECASE,
)
LASTING: Final = re.compile(
    r"\b(?:BackendGivenUp|BackendRefusedRow|Misconfigured)\b|\bChanges(?:Refused|Lost)\b"
    r"|\b(?:starting|ending)(?:Offsets|Timestamp)|\bDataLoss\b|\btable needs the package\b"
    r"|\bThere is no (?:topic|partition)\b|\bUnusableProperty\b|_AUTHORIZATION_FAILED\b"
    r"|\bDatabaseRefused\b|\bRowRefused\b"
    r"|\bSASL_AUTHENTICATION_FAILED\b|\bINVALID_TRANSACTION_TIMEOUT\b|\bAnalysisException\b|\[(?:UNRESOLVED|DATATYPE_MISMATCH|DIVIDE_BY_ZERO"
    r"|CAST_INVALID_INPUT|CAST_OVERFLOW|ARITHMETIC_OVERFLOW|MALFORMED_RECORD_IN_PARSING|STATE_STORE"
    r"|CANNOT_LOAD_STATE|USER_RAISED|DATA_SOURCE_NOT_FOUND"
    r"|STREAMING_STATEFUL_OPERATOR|STREAM_FAILED_CHECKPOINT|UNSUPPORTED|CONCURRENT_STREAM_LOG_UPDATE)"
)
NAMES_LEFT_OUT: Final = {
    "ChangesError", "ChangesLost", "ChangesRefused", "TableChanged",
    "DataLoss", "KafkaError", "Unreachable", "PipelineError", "StreamingQueryException", "SparkException",
    "DatabaseRefused", "DatabaseUnavailable", "RowRefused",
    "AnalysisException", "SparkClassNotFoundException", "SparkRuntimeException",
}  # fmt: skip
"""Exceptions whose name adds nothing to their message."""
_LAYERS: Final = (
    re.compile(r"^.*?An error occurred while calling \S+\n: ", re.DOTALL),
    re.compile(r"^.*?\bterminated with exception: ", re.DOTALL),
    re.compile(r"^.*?Job aborted due to stage failure: .*?\): (?=\S+(?:Exception|Error))", re.DOTALL),
)
_ERROR_CLASS: Final = re.compile(r"(?:^|(?<=: ))\[[A-Z0-9_.]+\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\b.*$", re.DOTALL)
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*)(?:: (.*))?$")
_QUALIFIED: Final = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+(?=[A-Z])")
"""The package of an exception's class, Java's or Python's."""
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_LIBRARY: Final = re.compile(
    r"site-packages|pyspark\.zip|[\\/]pyspark[\\/]|[\\/]lib[\\/]python|^<"
    r"|[\\/]moldau[\\/](?:backends|base|client|columns|databases|pipelines|spark|wire)[\\/]"
)
TRACEBACK: Final = "Traceback (most recent call last):"


def failure_of(text: str) -> Failure:
    """Return the reason in the text of an exception from Spark or Python."""
    reason = _connector_reason(text) or _python_reason(text) or _java_reason(text)
    message = f"{_user_code_place(text)}{_condense(reason)}"
    if LASTING.search(reason):
        return Failure(Kind.LASTING, message)
    return Failure(Kind.RETRIABLE if RETRIABLE.search(reason) else Kind.UNKNOWN, message)


def _connector_reason(text: str) -> str | None:
    """Return the error that Moldau's data source raised in a Python worker of Spark, without its traceback."""
    error = worker_error(text)
    return None if error is None else f"{error.name}: {error.sentence}"


def _python_reason(text: str) -> str | None:
    """Return the exception and its message from the last traceback. The other lines there are indented."""
    if TRACEBACK not in text:
        return None
    lines = text.rpartition(TRACEBACK)[2].splitlines()
    return next((line.strip() for line in lines if _PYTHON_ERROR.match(line)), None)


def _user_code_place(text: str) -> str:
    """Return where the user's Python code failed, as "file:line: "; "" if the last traceback has no user code."""
    frames = _FRAME.findall(text.rpartition(TRACEBACK)[2]) if TRACEBACK in text else []
    places = [(file, line) for file, line in frames if PurePath(file).is_absolute() and not _LIBRARY.search(file)]
    return f"{PurePath(places[-1][0]).name}:{places[-1][1]}: " if places else ""


def _java_reason(text: str) -> str:
    for layer in _LAYERS:
        text = layer.sub("", text, count=1)
    return next((line.strip() for line in text.splitlines() if line.strip()), text)


def _condense(reason: str) -> str:
    match = _PYTHON_ERROR.match(reason)
    if match and match[2] and match[1] in NAMES_LEFT_OUT:
        reason = match[2]
    reason = _SQLSTATE.sub("", _QUALIFIED.sub("", reason))
    flat = " ".join(_ERROR_CLASS.sub("", reason).split())
    return flat if len(flat) <= MESSAGE_LENGTH_MAX else flat[: MESSAGE_LENGTH_MAX - 1] + "…"
