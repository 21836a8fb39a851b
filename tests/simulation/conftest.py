"""Turns logging off: the broker logs a warning for every injected fault."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from seed_runs import SeedRuns


@pytest.fixture(autouse=True)
def _logging_is_off() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def seed_runs() -> SeedRuns:
    return SeedRuns()
