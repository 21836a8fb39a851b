"""Who leads the metadata log, and how much of it is committed.

A voter's word counts once what it has is on disk; what a majority has is committed. With a single voter the election
is its own vote and the majority its own disk: the same rules, and the only case there is today.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.raft.ports import LeaderLog, QuorumStateStore
from moldau.raft.states import QuorumState
from moldau.wire.records import ControlType, Record, build_batch, control_record

LEADER_CHANGE_VERSION = 0


class Quorum:
    def __init__(self, node_id: int, voters: Sequence[int], cluster_id: str, log: LeaderLog, store: QuorumStateStore):
        assert tuple(voters) == (node_id,), "a quorum of one"
        self._node_id = node_id
        self._voters = tuple(voters)
        self._cluster_id = cluster_id
        self._log = log
        self._store = store
        self._flushed = dict.fromkeys(voters, 0)
        self.leader_epoch = 0
        self.high_watermark = 0

    def elect(self, now_ms: int) -> int:
        """Stands for election in a new epoch, and wins: the epoch is remembered before anything is written in it."""
        known = self._store.read()
        # Either may have lost something: an epoch that one of them knows has been used.
        self.leader_epoch = max(known.leader_epoch if known else 0, self._log.last_epoch) + 1
        self._store.write(QuorumState(self._cluster_id, self._node_id, self.leader_epoch, self._node_id, self._voters))
        change = control_record(ControlType.LEADER_CHANGE, self._leader_change(), now_ms)
        self._log.append(
            build_batch([change], is_control=True, leader_epoch=self.leader_epoch), self.leader_epoch, now_ms
        )
        return self.leader_epoch

    def append(self, values: Sequence[bytes], now_ms: int) -> int:
        """Writes one batch, all of it or nothing; gives the offset behind it, at which it is committed."""
        records = [Record(offset, now_ms, None, value, ()) for offset, value in enumerate(values)]
        self._log.append(build_batch(records, leader_epoch=self.leader_epoch), self.leader_epoch, now_ms)
        return self._log.end_offset

    def flushed(self) -> int:
        """More of our log is on disk; gives the high watermark, which may have moved."""
        self._flushed[self._node_id] = self._log.flushed_offset
        majority = len(self._voters) // 2
        self.high_watermark = max(self.high_watermark, sorted(self._flushed.values(), reverse=True)[majority])
        return self.high_watermark

    def _leader_change(self) -> bytes:
        """LeaderChangeMessage v0: version, leader, voters, granting voters, each followed by its empty tags."""
        voters = bytes([len(self._voters) + 1]) + b"".join(v.to_bytes(4, "big") + b"\0" for v in self._voters)
        head = LEADER_CHANGE_VERSION.to_bytes(2, "big") + self._node_id.to_bytes(4, "big")
        return head + voters + voters + b"\0"
