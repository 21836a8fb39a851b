"""Waiting for Spark and for what its processes write, longer than `patience.wait_until` does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from harness.patience import SPARK_PATIENCE_S, text_of

Result = TypeVar("Result")


def wait_for_spark(condition: Callable[[], Result], what: str | Callable[[], str], every_s: float = 0.1) -> Result:
    """Wait until the condition returns something true, and return that. Fail after SPARK_PATIENCE_S."""
    deadline_s = time.monotonic() + SPARK_PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline_s, f"this did not happen within {SPARK_PATIENCE_S:g} s: {text_of(what)}"
        time.sleep(every_s)
    return result
