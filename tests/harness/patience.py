"""How tests wait: for a condition, never for a time. No test asserts how long something took.

`PATIENCE_S` is when a test gives up: many times what anything takes on a machine whose cores are all busy twice over.
MOLDAU_TEST_PATIENCE=4 makes it four times as long. While there is progress, a test does not give up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import ClassVar, TypeVar

PATIENCE_S = 120.0 * float(os.environ.get("MOLDAU_TEST_PATIENCE", "1"))
PATIENCE_MS = str(int(1000 * PATIENCE_S))
"""The same as text, for a command line or a setting."""
SPARK_PATIENCE_S = 5 * PATIENCE_S
"""Java starts, compiles itself, and starts Python processes: on a busy machine each takes long."""
LOOK_EVERY_S = 0.01

Result = TypeVar("Result")


def wait_until(
    condition: Callable[[], Result],
    what: str | Callable[[], str],
    progress: Callable[[], object] = lambda: None,
    every_s: float = LOOK_EVERY_S,
) -> Result:
    """Wait until the condition returns something true, and return that. Fail once `progress` has not changed for
    PATIENCE_S."""
    patience = Patience(what)
    while not (result := condition()):
        patience.check(progress())
        time.sleep(every_s)
    Patience.awaited = ""
    return result


class Patience:
    """For loops that do something between two checks: `check` fails when the progress has not changed for too long."""

    awaited: ClassVar[str | Callable[[], str]] = ""
    """What was waited for last; the progress lines show it while a test takes long."""

    def __init__(self, what: str | Callable[[], str]) -> None:
        self._what = what
        self._progress: object = None
        self._since_s = time.monotonic()

    def check(self, progress: object = None) -> None:
        Patience.awaited = self._what
        now_s = time.monotonic()
        if progress != self._progress:
            self._progress, self._since_s = progress, now_s
        if now_s - self._since_s > PATIENCE_S:
            raise AssertionError(f"no progress for {PATIENCE_S:g} s, waiting until {text_of(self._what)}")


def text_of(what: str | Callable[[], str]) -> str:
    return what if isinstance(what, str) else what()
