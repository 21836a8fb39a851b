"""How much randomized tests try: `make test` does what fits its time, `make deep` does more.

MOLDAU_TEST_DEPTH=10 lets them try ten times as many files, frames, requests, seeds and examples.
"""

from __future__ import annotations

import os

DEPTH = int(os.environ.get("MOLDAU_TEST_DEPTH", "1"))


def deep(count: int) -> int:
    return count * DEPTH
