"""States of share partitions in memory, instead of those of share coordinators: made, deleted and read at once, or when
the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.share.ports import ShareKey, ShareStates
from moldau.wire.messages import read_share_group_state, read_share_group_state_summary, write_share_group_state


class FakeShareStates(ShareStates):
    def __init__(self) -> None:
        self.start_offsets: dict[ShareKey, int] = {}
        self.epochs: dict[ShareKey, int] = {}
        self.errors: dict[tuple[str, int], ErrorCode] = {}
        """What a call with a key fails with, by the call's name and the partition."""
        self.is_held = False
        """Whether calls wait for `release`."""
        self._held: list[Callable[[], None]] = []

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Promise[ErrorCode]:
        def call() -> ErrorCode:
            code = self._error("initialize", key)
            if not code:
                self.start_offsets[key] = start_offset
                self.epochs[key] = state_epoch
            return code

        return self._call(call)

    def delete(self, key: ShareKey) -> Promise[ErrorCode]:
        def call() -> ErrorCode:
            code = self._error("delete", key)
            if not code:
                self.start_offsets.pop(key, None)
            return code

        return self._call(call)

    def read_summary(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state_summary.PartitionResult]:
        def call() -> read_share_group_state_summary.PartitionResult:
            code, start_offset = self._error("read_summary", key), self.start_offsets.get(key, -1)
            return read_share_group_state_summary.PartitionResult(key.partition, code, start_offset=start_offset)

        return self._call(call)

    def read(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state.PartitionResult]:
        raise NotImplementedError("leaders read states")

    def write(self, key: ShareKey, data: write_share_group_state.PartitionData) -> Promise[ErrorCode]:
        raise NotImplementedError("leaders write states")

    def release(self) -> None:
        """Make the calls that wait."""
        held, self._held = self._held, []
        for call in held:
            call()

    def _error(self, name: str, key: ShareKey) -> ErrorCode:
        return self.errors.get((name, key.partition), ErrorCode.NONE)

    def _call(self, call: Callable[[], Any]) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if self.is_held:
            self._held.append(lambda: promise.complete(call()))
        else:
            promise.complete(call())
        return promise
