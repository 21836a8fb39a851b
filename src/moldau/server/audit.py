"""The audit log: who was refused what, and who changed what. One line each, as key=value, on the logger moldau.audit.

Without an authorizer everybody may do everything, and is mostly nobody in particular: changes are then logged at DEBUG.

A flood of refusals must neither fill the disk nor hide what administrators did: of each second only so many lines of
each kind are written, and the rest is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from moldau.base.clock import Clock, Timers
from moldau.base.counters import AUDIT_LINES_DROPPED, DENIED, Counters
from moldau.base.errors import MalformedData
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import SLOW_ITEMS_A_TURN
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.security.acls.access import Needs
from moldau.security.acls.authorizer import Decision
from moldau.security.principals import Principal
from moldau.server.admin_actions import first_error, result_name
from moldau.server.conversation import LongReply
from moldau.server.handler import Answer, Caller, Handler, is_audited
from moldau.server.handlers.replies import run_steps
from moldau.server.late_replies import map_long_reply
from moldau.wire.apis import APIS
from moldau.wire.codec import NoReply
from moldau.wire.schema import Message

log = logging.getLogger("moldau.audit")
DENIED_LINES_PER_SECOND_MAX: Final = 50
LOGIN_LINES_PER_SECOND_MAX: Final = 50
"""Of failed logins. Strangers cause them, so they have a limit of their own: they must hide no refusal of a user."""
ADMIN_LINES_PER_SECOND_MAX: Final = 200
FAILED_LINES_PER_SECOND_MAX: Final = 50
"""Of administrative requests that failed."""
VALUE_LENGTH_MAX: Final = 300
COMMIT_EVERY_MS: Final = 60_000
"""A consumer that assigns partitions itself commits like a tool that resets offsets: one line a minute is enough."""
COMMITTERS_MAX: Final = 1000


class FailedLogin(NamedTuple):
    listener: str
    host: str
    mechanism: str
    """SSL for a TLS handshake; empty if the client has not chosen one that is enabled."""
    user: str
    """As whom the client wanted to log in; empty if it has not said so."""
    reason: str


class LineLimit:
    """Lets only so many lines of each second through."""

    def __init__(self, clock: Clock, counters: Counters, kind: str, lines_max: int) -> None:
        self._clock = clock
        self._counters = counters
        self._kind = kind
        self._lines_max = lines_max
        self._second = -1
        self._lines = self._suppressed = 0

    def may_write(self) -> bool:
        second = self._clock.monotonic_ms() // 1000
        if second != self._second:
            if self._suppressed:
                log.warning("%d more lines of %s were left out", self._suppressed, self._kind)
            self._second, self._lines, self._suppressed = second, 0, 0
        self._lines += 1
        if self._lines > self._lines_max:
            self._suppressed += 1
            self._counters.add(AUDIT_LINES_DROPPED)
            return False
        return True


class AuditLog:
    def __init__(self, clock: Clock, counters: Counters | None = None, has_authorizer: bool = True) -> None:
        self._clock = clock
        self._counters = counters or Counters()
        self._action_level = logging.INFO if has_authorizer else logging.DEBUG
        self._refusals = LineLimit(clock, self._counters, "denied requests", DENIED_LINES_PER_SECOND_MAX)
        self._actions = LineLimit(clock, self._counters, "administrative actions", ADMIN_LINES_PER_SECOND_MAX)
        self._failed_actions = LineLimit(
            clock, self._counters, "failed administrative actions", FAILED_LINES_PER_SECOND_MAX
        )
        self._logins = LineLimit(clock, self._counters, "failed logins", LOGIN_LINES_PER_SECOND_MAX)
        self._commits: dict[tuple[str, str, str, bool], int] = {}
        """When the last line about the offsets of a group was written, by principal, group and whether it failed."""

    def denied(self, principal: str, host: str, needs: Needs, name: str, decide: Callable[[], Decision]) -> None:
        """Log that a principal may not do something. `decide` is called only for a line that is written."""
        self._counters.add(DENIED)
        if not self._refusals.may_write():
            return
        decision = decide()
        operation = needs.operation.name.lower()
        resource = f"{needs.resource.name.lower()}:{name}"
        rule = decision.reason if decision.rule is None else str(decision.rule)
        log.info(
            "denied principal=%s host=%s operation=%s resource=%s rule=%s",
            *map(quoted, (principal, host, operation, resource, rule)),
        )

    def login_failed(self, failed: FailedLogin) -> None:
        if self._logins.may_write():
            *who, reason = map(quoted, failed._replace(reason=failed.reason.removeprefix("authentication failed: ")))
            log.info("login listener=%s host=%s mechanism=%s user=%s result=FAILED reason=%s", *who, reason)

    @property
    def logs_actions(self) -> bool:
        """Whether administrative requests are logged, at the level that the logger has now."""
        return log.isEnabledFor(self._action_level)

    def answered(self, handler: Handler | type[Handler], request: Any, response: Any, caller: Caller) -> Steps[None]:
        """Log what an administrative request changed, or tried to change. It may have changed thousands of things."""
        who, host = str(caller.access.principal), caller.address.rpartition(":")[0]
        source = [quoted(each) for each in (who, host, caller.client_id or "", APIS[handler.api].name)]
        turn = TurnItems(SLOW_ITEMS_A_TURN)
        for action in handler.admin_actions(request, response):
            if turn.ends_after(1):
                yield
            # What failed must not hide what was done: it has a limit of its own.
            if not (self._failed_actions if action.error_code else self._actions).may_write():
                continue
            result = action.resource, result_name(action.error_code), str(action.detail)
            log.log(
                self._action_level,
                "admin principal=%s host=%s client=%s action=%s resource=%s result=%s detail=%s",
                *source,
                *map(quoted, result),
            )

    def is_repeated_commit(self, principal: Principal, group_id: str, is_failed: bool = False) -> bool:
        """Whether there was a line shortly before about offsets of the group that the same principal committed, or
        failed to commit."""
        last_ms = self._commits.get((principal[0], principal[1], group_id, is_failed))
        return last_ms is not None and self._clock.monotonic_ms() - last_ms < COMMIT_EVERY_MS

    def committed(self, handler: Handler, request: Any, response: Any, caller: Caller) -> Steps[None]:
        """Log a commit of offsets, unless it is a repeated one. One that failed must not hide the next one that did
        not."""
        principal, group_id, is_failed = caller.access.principal, request.group_id, bool(first_error(response))
        if is_failed:
            group_id = group_id[:VALUE_LENGTH_MAX]  # anybody may name any group
        if self.is_repeated_commit(principal, group_id, is_failed):
            return
        key = (principal[0], principal[1], group_id, is_failed)
        self._commits.pop(key, None)
        self._commits[key] = self._clock.monotonic_ms()
        if len(self._commits) > COMMITTERS_MAX:
            del self._commits[next(iter(self._commits))]
        yield from self.answered(handler, request, response, caller)


class AuditedHandler:
    """A handler whose answered requests go into the audit log."""

    def __init__(self, handler: Handler, audit: AuditLog, timers: Timers) -> None:
        self._handler = handler
        self._audit = audit
        self._timers = timers

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any] | NoReply:
        reply = self._handler.answer(request, caller)
        if isinstance(reply, NoReply) or not self._audit.logs_actions or not self._handler.is_administrative(request):
            return reply
        if isinstance(reply, LongReply):
            return map_long_reply(
                reply,
                lambda response: (
                    response if isinstance(response, MalformedData) else self._logged(request, response, caller)
                ),
            )
        if isinstance(reply, Promise):
            return reply.and_then(lambda response: self._logged(request, response, caller))
        return self._logged(request, reply, caller)

    def _logged(self, request: Any, response: Message, caller: Caller) -> Message | Promise[Message]:
        return run_steps(self._timers, self._steps(request, response, caller))

    def _steps(self, request: Any, response: Message, caller: Caller) -> Steps[Message | Promise[Message]]:
        try:
            yield from self._write(request, response, caller)
        except Exception:  # a promise completes replies of several clients: a fault here must not stop the others
            INTERNAL_ERRORS.log(log, "the audit line of %s cannot be written", APIS[self._handler.api].name)
        return response

    def _write(self, request: Any, response: Message, caller: Caller) -> Steps[None]:
        return self._audit.answered(self._handler, request, response, caller)


class AuditedCommits(AuditedHandler):
    """For commits, which consumers send all the time: those of members, and repeated ones, cost next to nothing."""

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any] | NoReply:
        is_of_member = request.generation_id_or_member_epoch >= 0
        if is_of_member or self._audit.is_repeated_commit(caller.access.principal, request.group_id):
            return self._handler.answer(request, caller)
        return super().answer(request, caller)

    def _write(self, request: Any, response: Message, caller: Caller) -> Steps[None]:
        return self._audit.committed(self._handler, request, response, caller)


def audited(handler: Handler, audit: AuditLog, timers: Timers) -> Answer:
    """Return the handler's function that answers requests; that of an administrative API writes to the audit log."""
    if not is_audited(handler):
        return handler.answer
    return (AuditedCommits if handler.logs_once_a_minute else AuditedHandler)(handler, audit, timers).answer


def quoted(value: str) -> str:
    """Return the value for a key=value line: in quotes if it is empty or has spaces, quotes or `=`, and without control
    characters."""
    escaped = value[: VALUE_LENGTH_MAX + 1].encode("unicode_escape").decode("ascii")
    if len(escaped) > VALUE_LENGTH_MAX:
        escaped = escaped[:VALUE_LENGTH_MAX] + "..."
    if not escaped or any(char in escaped for char in ' "='):
        return '"' + escaped.replace('"', '\\"') + '"'
    return escaped
