"""Which parts of Moldau run on which operating system."""

from __future__ import annotations

import sys
from typing import Final

WINDOWS: Final = "win32"


def refusal_text(what: str, platform: str = sys.platform) -> str | None:
    """Return one line that says that `what`, which needs POSIX, does not run on this system; None if it does."""
    if platform != WINDOWS:
        return None
    return f"{what} does not run on Windows; run it in WSL 2, or on Linux or macOS (docs/platforms.md tells what runs)"
