"""The interface for whoever must know what happens in the quorum: who leads, and how much of the log is committed."""

from __future__ import annotations

from typing import Protocol


class QuorumListener(Protocol):
    def leading(self, epoch: int) -> None:
        """This node became the leader; the first record of its epoch is in the log."""
        ...

    def resigned(self) -> None:
        """This node is no longer the leader."""
        ...

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """There is another leader, or -1 while none is known."""
        ...

    def committed(self, high_watermark: int) -> None:
        """More of the log is committed. If the log now starts after what was applied, its snapshot has the rest."""
        ...
