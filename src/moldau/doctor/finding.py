"""The result of a check: what was found, whether it is fine, and what to do if it is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Works, with a restriction that the user should know."""
    BROKEN = "broken"
    """A broker or a pipeline could not start, or would stop."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Status
    found: str
    todo: str | None = None


def ok(check: str, found: str, todo: str | None = None) -> Finding:
    return Finding(check, Status.OK, found, todo)


def warning(check: str, found: str, todo: str) -> Finding:
    return Finding(check, Status.WARNING, found, todo)


def broken(check: str, found: str, todo: str) -> Finding:
    return Finding(check, Status.BROKEN, found, todo)
