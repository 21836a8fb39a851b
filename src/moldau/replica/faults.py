"""How partitions report storage faults to the node's log, besides the error to the client."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.errors import StorageFault

ReportFault = Callable[[str, StorageFault], None]
"""Called with what failed for which partition, and the fault."""


def unreported(what: str, fault: StorageFault) -> None:
    """Report nothing: the default of a partition."""
