"""How much randomized tests try: `make test` does what fits its time, `make deep` does more.

MOLDAU_TEST_DEPTH=10 lets them try ten times as many files, frames, requests, seeds and examples, and every defect that
a simulation must notice. It also runs the tests marked `only_deep`: dear ones whose behaviour a quicker test covers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
DEPTH = int(os.environ.get("MOLDAU_TEST_DEPTH", "1"))
only_deep = pytest.mark.skipif(DEPTH == 1, reason="only `make deep` runs it")


def deep(count: int, quick: int | None = None) -> int:
    """Return so many times the depth; without more depth `quick`, if it is given."""
    return count * DEPTH if DEPTH > 1 or quick is None else quick


def few(chosen: Iterable[T], of: Iterable[T]) -> list[T]:
    """Return the chosen ones; with more depth all."""
    return list(of if DEPTH > 1 else chosen)


def sample(items: Iterable[T], every: int, first: int = 0) -> list[T]:
    """Return every so-many-th item, from `first` modulo that number; with more depth all of them."""
    return list(items) if DEPTH > 1 else list(items)[first % every :: every]
