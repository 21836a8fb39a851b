"""The only machine of this simulation, and the state of its group coordinator for the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

from machines.machine import CONTROLLER_PORT, Machine

from moldau.assembly.broker_side import BrokerSide
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.coordinator.group.groups import Groups
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.shard import Shard

if TYPE_CHECKING:
    from machines.world import World

NODE_ID = 1
OFFSETS_PARTITIONS = 4
PROPERTIES = {
    "controller.quorum.voters": f"{NODE_ID}@n{NODE_ID}:{CONTROLLER_PORT}",
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "1",
    "offsets.retention.check.interval.ms": "20000",
}


class Coordinator(Machine):
    def __init__(self, world: World, properties: dict[str, str], rng: Random) -> None:
        super().__init__(world, NODE_ID, "broker,controller", {**PROPERTIES, **properties}, rng)

    @property
    def side(self) -> BrokerSide:
        assert self.assembly is not None
        assert self.assembly.broker_side is not None
        return self.assembly.broker_side

    @property
    def current(self) -> CurrentImage:
        assert self.assembly is not None
        return self.assembly.current

    def act(self, call: Callable[[], None]) -> None:
        """Run a call of the process."""
        assert self.process is not None
        self.process.act(call)

    def shards(self) -> Iterator[tuple[int, Shard, Groups]]:
        """Yield the shards that are loaded."""
        for index, (shard, machine) in self.side.groups.shards._shards.items():
            if shard.is_ready:
                yield index, shard, machine

    def is_loaded(self) -> bool:
        return len(list(self.shards())) == OFFSETS_PARTITIONS

    def machine_of(self, group_id: str) -> Groups | None:
        """Return the state machine of the shard that the group belongs to, if the shard is ready."""
        shards = self.side.groups.shards
        found = shards._shards.get(shards.partition_of(group_id))
        return found.machine if found is not None and found.shard.is_ready else None

    def offsets_partitions(self) -> list[Partition]:
        found = (self.side.partitions.find(CONSUMER_OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS))
        return [each for each in found if each is not None]
