"""The levels of this process' loggers, with Kafka's names: shown and changed while the node runs (KIP-412).

`root` is above all of them: `--log-level` sets it. A logger is there as soon as the code that writes to it is loaded. A
change is forgotten at the next start, and never hides the lines of the audit log. Nodes that share a process, as in
tests, share the loggers.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
OURS: Final = "moldau"
AUDIT: Final = "moldau.audit"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels, and what Python calls them. Nothing is logged below DEBUG."""

log = logging.getLogger("moldau.node")


class LogLevels:
    def __init__(self, root: logging.Logger = logging.root) -> None:
        self._root = root

    def levels(self) -> dict[str, str]:
        """Return the level that holds for each logger: its own, or the one of the nearest logger above it."""
        return {name: _name(logger.getEffectiveLevel()) for name, logger in sorted(self._loggers().items())}

    def set(self, name: str, level: str) -> None:
        """Set the level of a logger that is there. Loggers below it that have none of their own follow."""
        # Written before: the new level may hide the line.
        log.warning("the log level of %s is now %s", name, level)
        loggers = self._loggers()
        if name in (ROOT, OURS) and AUDIT in loggers:
            loggers[AUDIT].setLevel(loggers[AUDIT].getEffectiveLevel())
        loggers[name].setLevel(LEVELS[level])

    def unset(self, name: str) -> None:
        """Let a logger follow the one above it again."""
        assert name != ROOT, "there is nothing above it"
        log.warning("the log level of %s is no longer set", name)
        self._loggers()[name].setLevel(logging.NOTSET)

    def _loggers(self) -> dict[str, logging.Logger]:
        found = {
            name: logger
            for name, logger in list(self._root.manager.loggerDict.items())
            if isinstance(logger, logging.Logger) and name.startswith(f"{OURS}.")
        }
        return {ROOT: self._root, OURS: self._root.manager.getLogger(OURS), **found}


def _name(level: int) -> str:
    """Return the lowest of Kafka's levels that is written at a level of Python."""
    return next((name for name, number in LEVELS.items() if number >= level), "FATAL")
