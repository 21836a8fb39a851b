"""What the quorum reports. `Core` queues these values, and the driver passes each to every `QuorumListener`."""

from __future__ import annotations

from dataclasses import dataclass


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
