"""Collects what earlier tests left open. Clients that the tests use forget to close some sockets."""

from __future__ import annotations

import gc
import warnings


def collect_leftovers() -> None:
    """Collect without the warnings: pytest would fail the next test for them, which has nothing to do with them."""
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()
