"""What of Moldau runs on which system."""

from __future__ import annotations

import sys
from typing import Final

WINDOWS: Final = "win32"


def refusal(what: str, platform: str = sys.platform) -> str | None:
    """Why `what`, which needs POSIX, does not run on this system, in one line; None if it does."""
    if platform != WINDOWS:
        return None
    return f"{what} does not run on Windows; run it in WSL 2, or on Linux or macOS (docs/platforms.md tells what runs)"
