"""The interface of the quorum's listeners: they learn who leads, and how much of the log is committed."""

from __future__ import annotations

from typing import Protocol


class QuorumListener(Protocol):
    def leading(self, epoch: int) -> None:
        """This node became the leader; the first record of its epoch is in the log."""
        ...

    def no_longer_leading(self) -> None:
        """This node is no longer the leader."""
        ...

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """The leader changed; `leader_id` is -1 while none is known."""
        ...

    def committed(self, high_watermark: int) -> None:
        """The high watermark moved. If the log starts beyond the applied offset, its snapshot has the rest."""
        ...
