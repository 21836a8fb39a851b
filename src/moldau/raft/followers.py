"""Those who must know what becomes of the quorum: who leads, and how much of the log is committed."""

from __future__ import annotations

from typing import Protocol


class QuorumFollower(Protocol):
    def leading(self, epoch: int) -> None:
        """This node leads from now on; its first record is in the log."""
        ...

    def resigned(self) -> None:
        """This node led, and does no more."""
        ...

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Another leader, or -1 while nobody knows one."""
        ...

    def committed(self, high_watermark: int) -> None:
        """More of the log is committed. If the log now begins behind what was applied, its snapshot has the rest."""
        ...
