"""What an HTTP device may cost. docs/gateway.md has the same table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

QUERY_LENGTH_MAX: Final = 8_000


@dataclass(frozen=True, slots=True)
class HttpLimits:
    connections: int = 10_000
    """One more is answered with 503."""
    head_seconds: float = 15.0
    """A connection whose next request has begun, or that has sent nothing yet, and has no whole head by then is
    closed."""
    body_seconds: float = 60.0
    """A body that is not whole by then is answered with 408."""
    idle_seconds: int = 120
    """A connection without a request is closed."""
    slow_seconds: float = 30.0
    """A reader that does not take what is sent to it is closed."""
    body_bytes: int = 2 << 20
    """A larger body is answered with 413."""
    bodies_bytes: int = 256 << 20
    """Of all bodies that are being received: beyond it a request is answered with 503."""
    consumers: int = 1_000
    """That clients of the REST proxy have made, each with threads of its own; one more is answered with 429."""
    consumers_of_user: int = 100
    consumer_idle_s: float = 300.0
    """A consumer without a request ends."""
    streams: int = 5_000
    """Event streams and web sockets; one more is answered with 429."""
