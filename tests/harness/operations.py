"""The cost of a call, counted in executed lines of Python: the same on every machine, however busy it is.

Tests that check that a cost does not grow too fast compare such counts, never seconds.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def operations_of(action: Callable[[], object]) -> int:
    """Return the number of lines and calls that ran in this thread until the action returned or raised, without C
    code."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    gc.disable()  # finalizers of other tests' garbage would be counted
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        gc.enable()
    return count
