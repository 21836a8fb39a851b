"""The audit log: who was refused what. One line each, as key=value, on the logger moldau.audit.

A flood of refusals must not fill the disk: of each second only so many lines are written, and the rest is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.base.clock import Clock
from moldau.security.acls.access import Needs
from moldau.security.acls.authorizer import Decision

log = logging.getLogger("moldau.audit")
LINES_PER_SECOND_MAX: Final = 50
VALUE_LENGTH_MAX: Final = 300


class AuditLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._lines = self._suppressed = 0

    def denied(self, principal: str, host: str, needs: Needs, name: str, decide: Callable[[], Decision]) -> None:
        """Log that a principal may not do something. `decide` is called only for a line that is written."""
        if not self._may_write():
            return
        decision = decide()
        operation = needs.operation.name.lower()
        resource = f"{needs.resource.name.lower()}:{name}"
        rule = decision.reason if decision.rule is None else str(decision.rule)
        log.info(
            "denied principal=%s host=%s operation=%s resource=%s rule=%s",
            *map(quoted, (principal, host, operation, resource, rule)),
        )

    def _may_write(self) -> bool:
        second = self._clock.elapsed_ms() // 1000
        if second != self._second:
            if self._suppressed:
                log.warning("%d more lines of the audit log were left out", self._suppressed)
            self._second, self._lines, self._suppressed = second, 0, 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND_MAX:
            self._suppressed += 1
            return False
        return True


def quoted(value: str) -> str:
    """Return the value for a key=value line: in quotes if it has spaces or quotes, and without control characters."""
    cut = value if len(value) <= VALUE_LENGTH_MAX else value[:VALUE_LENGTH_MAX] + "…"
    escaped = cut.encode("unicode_escape").decode("ascii")
    if any(char in escaped for char in ' "='):
        return '"' + escaped.replace('"', '\\"') + '"'
    return escaped
