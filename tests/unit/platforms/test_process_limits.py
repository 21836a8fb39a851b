"""Limits of a process. Each is set in a child process, so that the test process stays unlimited."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT_MEMORY = """
import sys
from moldau.platforms.process_limits import limit_memory
limit_memory(int(sys.argv[1]))
bytearray(1 << 20)
"""


@pytest.mark.parametrize("extra_bytes", [128 << 20, 2**63 - 1])
def test_a_process_works_within_its_limit_of_memory(extra_bytes: int) -> None:
    """The largest number that the setting accepts has the effect of no limit."""
    subprocess.run([sys.executable, "-c", LIMIT_MEMORY, str(extra_bytes)], check=True)
