"""Clusters that are broken on purpose, to see whether the simulation notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from moldau.log.producers import Producers
from moldau.metadata.controller import broker_registration, leaderships, partition_change
from moldau.raft.roles import Role, Unattached
from moldau.replica import reading
from moldau.replica.follower import Follower
from moldau.replica.leadership import Leadership
from moldau.replica.partition import Partition
from moldau.runtime.metadata_log import MetadataLog
from moldau.runtime.quorum_state_file import QuorumStateFile

Patch = pytest.MonkeyPatch
Way = Callable[[Patch], None]


def nothing_is_truncated_by_epoch(patch: Patch) -> None:
    patch.setattr(Follower, "cut_where_parted", lambda *_: None)
    patch.setattr(reading, "divergence", lambda *_: None)


def it_is_acknowledged_before_the_in_sync_replicas_have_it(patch: Patch) -> None:
    patch.setattr(Partition, "acknowledged", lambda *_: None)


def the_high_watermark_does_not_wait_for_the_in_sync_replicas(patch: Patch) -> None:
    patch.setattr(Leadership, "limit", lambda self, own_offset, _: own_offset)


def metadata_that_is_not_on_disk_counts(patch: Patch) -> None:
    patch.setattr(MetadataLog, "flushed_offset", property(lambda self: self.end_offset))


def votes_are_forgotten(patch: Patch) -> None:
    patch.setattr(QuorumStateFile, "read", lambda self: None)


WAYS: dict[Way, int] = {
    nothing_is_truncated_by_epoch: 0,
    it_is_acknowledged_before_the_in_sync_replicas_have_it: 0,
    the_high_watermark_does_not_wait_for_the_in_sync_replicas: 0,
    metadata_that_is_not_on_disk_counts: 0,
    votes_are_forgotten: 0,
}
"""Each with a seed that is known to show it soon."""
