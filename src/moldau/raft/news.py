"""What the quorum reports. `Core` queues these values, and the driver passes each to every `QuorumListener`, who learns
who leads, and how much of the log is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Leading:
    """This node became the leader; LeaderChanged came before it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NoLongerLeading:
    """This node led, and resigned or was deposed."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """There is another leader or epoch; `leader_id` is -1 while no leader is known."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Committed:
    high_watermark: int


News = Leading | NoLongerLeading | LeaderChanged | Committed


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
