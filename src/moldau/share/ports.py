"""What a share partition needs of the share coordinators, which keep its state in `__share_group_state`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid, uuid_text
from moldau.base.promise import Promise
from moldau.wire.messages import read_share_group_state, read_share_group_state_summary, write_share_group_state


class ShareKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which clients find its share coordinator."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class ShareStates(Protocol):
    """States of share partitions, at the coordinator of each. Every promise is completed with a value, in which an
    error is a code; errors that pass are tried again before."""

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Promise[ErrorCode]: ...

    def read(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state.PartitionResult]: ...

    def write(self, key: ShareKey, data: write_share_group_state.PartitionData) -> Promise[ErrorCode]: ...

    def delete(self, key: ShareKey) -> Promise[ErrorCode]: ...

    def read_summary(
        self, key: ShareKey, leader_epoch: int
    ) -> Promise[read_share_group_state_summary.PartitionResult]: ...
