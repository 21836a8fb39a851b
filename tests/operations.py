"""What a call costs, counted in lines of Python that ran: the same on every machine, however busy it is.

Tests that something does not grow out of hand compare such counts, never seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def operations_of(action: Callable[[], object]) -> int:
    """Lines and calls that ran in this thread until the action returned or raised; what C code does is not seen."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
