"""What the MQTT front counts, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    connections: int = 0
    """Open now."""
    connections_total: int = 0
    logins: int = 0
    messages_in: int = 0
    """PUBLISH packets of clients, refused ones too."""
    messages_out: int = 0
    """PUBLISH packets to clients."""
    bytes_in: int = 0
    bytes_out: int = 0
    held_bytes: int = 0
    """Of incomplete packets, now."""
    queued_bytes: int = 0
    """Of messages of clients that are not appended yet, now."""
    refused: dict[str, int] = field(default_factory=dict)
    """By what was refused (connection, login, publish, subscription) and why."""

    def refuse(self, what: str) -> None:
        self.refused[what] = self.refused.get(what, 0) + 1
