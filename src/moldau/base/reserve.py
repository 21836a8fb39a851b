"""The reserve in a data directory: its name and its size. `log/reserve` keeps it, `moldau doctor` looks at it."""

from __future__ import annotations

from typing import Final

RESERVE_FILE: Final = ".moldau_reserve"
SHARE_OF_DISK: Final = 32
"""On a small disk the reserve takes one part in so many of it."""


def reserve_size(configured: int, disk_bytes: int) -> int:
    """Return how large the reserve should be on a disk of `disk_bytes`."""
    return min(configured, disk_bytes // SHARE_OF_DISK)
