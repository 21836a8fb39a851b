"""What all tests share: a word for those that need a package that not every Python has wheels for."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_re2: skipped where google-re2 is not installed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_re2") and importlib.util.find_spec("re2") is None:
        pytest.skip("google-re2 is not installed: it has no wheel for this Python")
