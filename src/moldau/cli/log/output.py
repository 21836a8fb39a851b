"""The log lines of a server: their lowest level, and text or one JSON object per line.

Set by options of the command or by MOLDAU_LOG_LEVEL and MOLDAU_LOG_FORMAT. Messages quote bytes from clients: control
characters are escaped, so that none reaches the terminal or starts a line that looks like one of ours.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FORMATS: Final = ("text", "json")
LEVEL_VARIABLE: Final = "MOLDAU_LOG_LEVEL"
FORMAT_VARIABLE: Final = "MOLDAU_LOG_FORMAT"

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_TRACE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class WrongLogChoice(ValueError):
    """The level or format does not exist; the message is one line."""


class LogOutput(NamedTuple):
    level: str = "info"
    format: str = "text"

    @property
    def is_json(self) -> bool:
        return self.format == "json"

    def variables(self) -> dict[str, str]:
        """Return the same choice as environment variables, for a child process."""
        return {LEVEL_VARIABLE: self.level, FORMAT_VARIABLE: self.format}


def choose(level: str | None, format: str | None, environ: Mapping[str, str]) -> LogOutput:
    """Return the output; options win over the environment. WrongLogChoice names the wrong value and the valid ones."""
    default = LogOutput()
    return LogOutput(
        _one_of(LEVELS, ("--log-level", level), LEVEL_VARIABLE, environ) or default.level,
        _one_of(FORMATS, ("--log-format", format), FORMAT_VARIABLE, environ) or default.format,
    )


def _one_of(
    choices: Mapping[str, int] | tuple[str, ...],
    option: tuple[str, str | None],
    variable: str,
    environ: Mapping[str, str],
) -> str | None:
    name, value = option
    if value is None:
        name, value = variable, environ.get(variable) or None
    if value is None:
        return None
    *others, last = choices
    if value.lower() not in (*others, last):
        raise WrongLogChoice(f"{name} {value!r}: expected {', '.join(others)} or {last}")
    return value.lower()


def set_up(output: LogOutput, node_id: int | None = None) -> None:
    """Send every log line of this process to stderr, in the chosen format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(node_id) if output.is_json else TextLines())
    logging.basicConfig(level=LEVELS[output.level], handlers=[handler], force=True)


class TextLines(logging.Formatter):
    """`time LEVEL message`, the stack trace indented below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(_escaped, super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        trace = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join("  " + _CONTROL_IN_TRACE.sub(_escaped, line) for line in trace.split("\n"))


class JsonLines(logging.Formatter):
    """One JSON object per line. JSON's own escapes keep every character of a message inside its string."""

    def __init__(self, node_id: int | None) -> None:
        super().__init__()
        self._node = {} if node_id is None else {"node": node_id}

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {
            "time": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
