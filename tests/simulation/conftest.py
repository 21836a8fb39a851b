"""The broker warns of every fault that the simulation makes; nobody wants to read that a thousand times."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from befallen import Befallen


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def befallen() -> Befallen:
    return Befallen()
