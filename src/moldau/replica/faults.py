"""How partitions tell what the disk refused, beside the client, who is told in Kafka's way."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.errors import StorageFault

ReportFault = Callable[[str, StorageFault], None]
"""What cannot be done to which partition, and why."""


def unreported(what: str, fault: StorageFault) -> None:
    """For partitions of which nobody keeps a log."""
