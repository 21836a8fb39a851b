"""The events of the quorum for its listeners, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leading:
    epoch: int


@dataclass(frozen=True, slots=True)
class NoLongerLeading:
    pass


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Committed:
    high_watermark: int


News = Leading | NoLongerLeading | LeaderChanged | Committed
