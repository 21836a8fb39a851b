"""Which of the systems' ways can be tried where these tests run."""

from __future__ import annotations

import sys

import pytest

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="it makes calls that only Linux has")
LINUX = pytest.param("linux", marks=linux_only)
