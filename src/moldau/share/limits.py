"""What a share group may hold, and how its records are given out."""

from __future__ import annotations

from typing import NamedTuple


class ShareLimits(NamedTuple):
    """The values of `share.*` that hold for a group: its own configs, or the broker's settings."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    """After so many deliveries a record is archived."""
    partition_max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    """`earliest`, `latest` or `by_duration:PnDTnHnMn.nS`: where a group begins that has not read the partition yet."""
    is_read_committed: bool = False
    allows_renewal: bool = True
    dead_letter_topic: str = ""
    """Where records go that the group has given up; empty for nowhere."""
    copies_dead_letters: bool = False
    """Whether a dead letter has the key and the value of its record."""
