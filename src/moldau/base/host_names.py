"""Names of hosts that can be looked up."""

from __future__ import annotations


def is_host_name(host: str) -> bool:
    """Whether a connection to this name or IP address can be tried. For others, as `a..b`, Python's sockets raise
    UnicodeError instead of OSError."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False
