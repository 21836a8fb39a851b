"""Random requests to the share coordinator, with failovers and pruned logs, against a model that keeps the state of
each offset. Whatever was acknowledged is there, and a machine that replays the log has the state of the live one."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from harness.in_memory_share_shard import TOPIC, InMemoryShareShard, without_places

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.share.settings import ShareCoordinatorSettings
from moldau.share.ports import ShareKey
from moldau.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
)

STEPS = 150


@dataclass
class Model:
    state_epoch: int
    start_offset: int
    leader_epoch: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The delivery count and state of each offset."""

    def write(self, data: write_share_group_state.PartitionData) -> None:
        """A write that later ones have overtaken does not move the start back."""
        self.start_offset = max(self.start_offset, data.start_offset)
        for each in data.state_batches:
            for offset in range(each.first_offset, each.last_offset + 1):
                state = (each.delivery_count, each.delivery_state)
                self.offsets[offset] = max(state, self.offsets.get(offset, state))
        self.offsets = {offset: state for offset, state in self.offsets.items() if offset >= self.start_offset}


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        settings = ShareCoordinatorSettings(
            updates_per_snapshot=self.rng.choice([0, 1, 3]), cold_snapshot_interval_ms=50
        )
        self.shard = InMemoryShareShard(settings)
        self.models: dict[ShareKey, Model] = {}
        self.keys = [ShareKey(group, TOPIC, partition) for group in "ab" for partition in range(2)]

    def step(self) -> None:
        rng, shard = self.rng, self.shard
        shard.clock.move(rng.randrange(20))
        action = rng.choices(
            [self.initialize, self.write, self.read, self.delete, self.fail_over, shard.prune, self.snapshot_cold],
            [2, 12, 3, 1, 1, 1, 2],
        )[0]
        action()
        for key in self.keys:
            self.check(key)
        assert without_places(shard.replayed()) == without_places(shard.machine)

    def initialize(self) -> None:
        key, epoch, start_offset = self.rng.choice(self.keys), self.rng.randrange(4), self.rng.randrange(-1, 10)
        data = initialize_share_group_state.PartitionData(key.partition, epoch, start_offset)
        before = self.shard.machine.states.get(key)
        is_late = start_offset == -1 and before is not None and before.was_begun_in(epoch)
        result = self.shard.execute(self.shard.machine.initialize(key, data))
        model = self.models.get(key)
        if model is not None and epoch < model.state_epoch:
            assert result.error_code == ErrorCode.FENCED_STATE_EPOCH
        else:
            assert result.error_code == ErrorCode.NONE
            if not is_late:
                self.models[key] = Model(epoch, start_offset)

    def write_data(self, key: ShareKey) -> write_share_group_state.PartitionData:
        rng = self.rng
        batches = []
        for _ in range(rng.randrange(4)):
            first = rng.randrange(30)
            batches.append(
                write_share_group_state.StateBatch(
                    first, first + rng.randrange(8), rng.choice([0, 2, 4]), rng.randrange(1, 4)
                )
            )
        return write_share_group_state.PartitionData(key.partition, -1, -1, rng.randrange(-1, 25), 0, batches)

    def write(self) -> None:
        key = self.rng.choice(self.keys)
        data = self.write_data(key)
        result = self.shard.execute(self.shard.machine.write(key, data))
        assert (result.error_code == ErrorCode.NONE) == (key in self.models)
        if key in self.models:
            self.models[key].write(data)

    def read(self) -> None:
        key, epoch = self.rng.choice(self.keys), self.rng.randrange(4)
        result = self._read(key, epoch)
        model = self.models.get(key)
        if model is not None and result.error_code == ErrorCode.NONE:
            model.leader_epoch = epoch

    def delete(self) -> None:
        key = self.rng.choice(self.keys)
        data = delete_share_group_state.PartitionData(key.partition)
        assert self.shard.execute(self.shard.machine.delete(key, data)).error_code == ErrorCode.NONE
        self.models.pop(key, None)

    def fail_over(self) -> None:
        """Lose some writes that were not committed: those that were are acknowledged, or their response is unknown."""
        self.shard.is_committing = False
        written: list[tuple[ShareKey, Any, Any]] = []
        for _ in range(self.rng.randrange(4)):
            key = self.rng.choice(list(self.models) or [None])
            if key is not None:
                data = self.write_data(key)
                written.append((key, data, self.shard.execute(self.shard.machine.write(key, data))))
        kept = self.rng.randrange(4)
        self.shard.fail(kept)
        self.shard.is_committing = True
        for number, (key, data, answer) in enumerate(written):
            assert isinstance(answer, Promise)
            assert isinstance(answer.value(), KafkaError)
            if number < kept:
                self.models[key].write(data)

    def snapshot_cold(self) -> None:
        self.shard.execute_all(self.shard.machine.snapshot_cold(self.shard.clock.now_ms()))

    def check(self, key: ShareKey) -> None:
        result, model = self._read(key, -1), self.models.get(key)
        if model is None:
            assert result.error_code == ErrorCode.INVALID_REQUEST
            return
        assert (result.error_code, result.state_epoch, result.start_offset) == (
            0,
            model.state_epoch,
            model.start_offset,
        )
        offsets = {
            offset: (each.delivery_count, each.delivery_state)
            for each in result.state_batches
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        assert offsets == model.offsets

    def _read(self, key: ShareKey, epoch: int) -> Any:
        data = read_share_group_state.PartitionData(key.partition, epoch)
        return self.shard.execute(self.shard.machine.read(key, data))


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_is_kept(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
    assert chaos.shard.start_offset > 0, "the log was never pruned"
