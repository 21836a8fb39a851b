"""When the keys of an identity provider are read again: after a time, sooner after a failure, and at once when a token
names a key that is not known yet, but not at the pace at which strangers invent names.
"""

from __future__ import annotations

from typing import Final

FILE_CHECK_MS: Final = 5000
"""How often a file is read. Its keys are few, and an operator who takes one away wants to see it work."""
UNKNOWN_KEY_INTERVAL_MS_MIN: Final = 10_000
"""Between two reads because of unknown keys."""
UNKNOWN_KEY_INTERVAL_FILE_MS_MIN: Final = 500


class RefreshSchedule:
    """Times are those of a monotonic clock."""

    def __init__(self, refresh_ms: int, retry_ms: int, retry_ms_max: int, *, is_file: bool) -> None:
        self._refresh_ms = FILE_CHECK_MS if is_file else refresh_ms
        self._retry_ms, self._retry_ms_max = retry_ms, retry_ms_max
        self._interval_ms = UNKNOWN_KEY_INTERVAL_FILE_MS_MIN if is_file else UNKNOWN_KEY_INTERVAL_MS_MIN
        self._failures = 0
        self._not_before_ms: int | None = None

    def after_success_ms(self) -> int:
        """Return how long to wait until the next read."""
        self._failures = 0
        return self._refresh_ms

    def after_failure_ms(self) -> int:
        doublings = min(self._failures, 20)
        self._failures += 1
        return min(max(1, self._retry_ms) << doublings, max(1, self._retry_ms_max))

    def allows_for_unknown_key(self, now_ms: int) -> bool:
        """Whether to read now because of an unknown key; if so, the next time is some time away."""
        if self._not_before_ms is not None and now_ms < self._not_before_ms:
            return False
        self._not_before_ms = now_ms + self._interval_ms
        return True
