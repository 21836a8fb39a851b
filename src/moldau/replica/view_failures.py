"""The runs of a view's partition that could not be evaluated: what is tried again and when, and what readers are told.

A run for which the view or a record is to blame fails at once: readers get CORRUPT_MESSAGE, which clients report. Other
failures pass: a file was replaced, a worker was killed. Such a run is tried again a few times; then readers get
KAFKA_STORAGE_ERROR, after which clients ask again without telling anybody.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.views.jobs import ViewFailed

REMEMBERED_MS: Final = 5_000
"""Readers ask again at once, and must not have a failed run evaluated again each time."""
REMEMBERED_MAX_MS: Final = 160_000
"""A failure is remembered twice as long each time the same run fails again, up to this."""
BACKOFFS_MS: Final = (50, 200, 800)
"""Before each further try."""
FAILURES_MAX: Final = 100


class _Failure(NamedTuple):
    until_ms: int
    tries: int
    error: KafkaError | None
    """None while it will be tried again."""
    times: int
    """How often readers were told that it failed."""


class RunFailures:
    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[int, _Failure] = {}
        """By the offset of the run."""

    def add(self, offset: int, failed: ViewFailed, now_ms: int) -> int | None:
        """Return after how many milliseconds the run is to be tried again; None if readers are told that it failed."""
        before = self._failures.pop(offset, None)
        tries, times = (0, 0) if before is None else (before.tries, before.times)
        while len(self._failures) >= FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        if failed.is_retriable and tries < len(BACKOFFS_MS):
            backoff_ms = BACKOFFS_MS[tries]
            self._failures[offset] = _Failure(now_ms + backoff_ms, tries + 1, None, times)
            return backoff_ms
        code = ErrorCode.KAFKA_STORAGE_ERROR if failed.is_retriable else ErrorCode.CORRUPT_MESSAGE
        remembered_ms = min(REMEMBERED_MS << min(times, 10), REMEMBERED_MAX_MS)
        error = KafkaError(code, failed.why)
        self._failures[offset] = _Failure(now_ms + remembered_ms, 0, error, times + 1)
        return None

    def must_wait(self, offset: int, now_ms: int) -> bool:
        """Whether the run must not be evaluated now."""
        failure = self._failures.get(offset)
        return failure is not None and now_ms < failure.until_ms

    def error(self, offset: int) -> KafkaError | None:
        """What readers of a run that must wait are told; None if it has not failed, or will be tried again."""
        failure = self._failures.get(offset)
        return None if failure is None else failure.error

    def forget(self, offset: int) -> None:
        self._failures.pop(offset, None)

    def clear(self) -> None:
        self._failures.clear()
