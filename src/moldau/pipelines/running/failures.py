"""What Spark says when a query dies, in one line, and whether trying again may help.

Spark wraps the reason in layers: its own name for the failed query, the task that failed, the traceback of a Python
worker, the JVM's stack. The reason is the innermost of these. Pure text work: no Spark in here.
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
    """The world's, and likely to pass: a broker that is away, an executor that died."""
    LASTING = "lasting"
    """Will be the same however often it is tried: wrong SQL, lost data, a topic that is not there."""
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
    r"\b(?:Unreachable|ConnectionError|ConnectionRefusedError|ConnectionResetError|ConnectionAbortedError"
    r"|BrokenPipeError|TimeoutError|java\.net\.\w+|java\.util\.concurrent\.TimeoutException|ExecutorLostFailure"
    r"|executor .* exited|worker lost)\b|_NOT_AVAILABLE\b|\bNOT_LEADER|\bREQUEST_TIMED_OUT\b|\bNETWORK_EXCEPTION\b"
    r"|\bNOT_ENOUGH_REPLICAS|\bNOT_CONTROLLER\b|\bNOT_COORDINATOR\b|_LOAD_IN_PROGRESS\b|has no leader"
    r"|\bCONCURRENT_TRANSACTIONS\b|\bUNSTABLE_OFFSET_COMMIT\b"
    r"|Python worker failed to connect back|Python worker exited unexpectedly",
    re.IGNORECASE,
)
LASTING: Final = re.compile(
    r"\b(?:starting|ending)(?:Offsets|Timestamp)|\bDataLoss\b"
    r"|\bThere is no (?:topic|partition)\b|\bUnusableProperty\b|_AUTHORIZATION_FAILED\b"
    r"|\bSASL_AUTHENTICATION_FAILED\b|\bINVALID_TRANSACTION_TIMEOUT\b|\bAnalysisException\b|\[(?:UNRESOLVED|DATATYPE_MISMATCH|DIVIDE_BY_ZERO"
    r"|CAST_INVALID_INPUT|CAST_OVERFLOW|ARITHMETIC_OVERFLOW|MALFORMED_RECORD_IN_PARSING|STATE_STORE"
    r"|CANNOT_LOAD_STATE|USER_RAISED|DATA_SOURCE_NOT_FOUND"
    r"|STREAMING_STATEFUL_OPERATOR|STREAM_FAILED_CHECKPOINT|UNSUPPORTED|CONCURRENT_STREAM_LOG_UPDATE)"
)
SPEAK_FOR_THEMSELVES: Final = {
    "DataLoss", "KafkaError", "Unreachable", "PipelineError", "StreamingQueryException", "SparkException",
    "AnalysisException", "SparkClassNotFoundException", "SparkRuntimeException",
}  # fmt: skip
"""Exceptions whose name adds nothing to what they say."""
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
    r"|[\\/]moldau[\\/](?:base|client|columns|pipelines|spark|wire)[\\/]"
)
TRACEBACK: Final = "Traceback (most recent call last):"


def failure_of(text: str) -> Failure:
    """The reason in what Spark or Python said about the end of a query."""
    reason = _connector_reason(text) or _python_reason(text) or _java_reason(text)
    message = f"{_own_code(text)}{_condensed(reason)}"
    if LASTING.search(reason):
        return Failure(Kind.LASTING, message)
    return Failure(Kind.RETRIABLE if RETRIABLE.search(reason) else Kind.UNKNOWN, message)


def _connector_reason(text: str) -> str | None:
    """What our data sources said in a Python process of Spark's, without a trace."""
    found = worker_error(text)
    return None if found is None else f"{found.name}: {found.sentence}"


def _python_reason(text: str) -> str | None:
    """The last line of the last traceback: the exception and what it says. Code and places are indented."""
    if TRACEBACK not in text:
        return None
    lines = text.rpartition(TRACEBACK)[2].splitlines()
    return next((line.strip() for line in lines if _PYTHON_ERROR.match(line)), None)


def _own_code(text: str) -> str:
    """Where the user's own Python failed, as file:line; nothing if that is not in the last traceback."""
    frames = _FRAME.findall(text.rpartition(TRACEBACK)[2]) if TRACEBACK in text else []
    own = [(file, line) for file, line in frames if PurePath(file).is_absolute() and not _LIBRARY.search(file)]
    return f"{PurePath(own[-1][0]).name}:{own[-1][1]}: " if own else ""


def _java_reason(text: str) -> str:
    for layer in _LAYERS:
        text = layer.sub("", text, count=1)
    return next((line.strip() for line in text.splitlines() if line.strip()), text)


def _condensed(reason: str) -> str:
    found = _PYTHON_ERROR.match(reason)
    if found and found[2] and found[1] in SPEAK_FOR_THEMSELVES:
        reason = found[2]
    reason = _SQLSTATE.sub("", _QUALIFIED.sub("", reason))
    flat = " ".join(_ERROR_CLASS.sub("", reason).split())
    return flat if len(flat) <= MESSAGE_LENGTH_MAX else flat[: MESSAGE_LENGTH_MAX - 1] + "…"
