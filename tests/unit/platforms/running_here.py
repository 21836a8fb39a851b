"""Marks for tests that run only on some operating systems."""

from __future__ import annotations

import sys

import pytest

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="it uses system calls that only Linux has")
LINUX = pytest.param("linux", marks=linux_only)
