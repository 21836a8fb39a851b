"""A cluster whose records are read by share groups: leaders, share coordinators and group coordinators die and move,
while members acknowledge, make mistakes and vanish.

Whatever happens, no accepted record comes again, none is skipped, and none is delivered too often. When all faults have
ended, every record is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from cluster import world as cluster_world
from cluster.ledger import Ledger
from cluster.producers import Producer
from cluster.world import ClusterWorld, Size
from machines.world import TAIL

from moldau.base.errors import KafkaError
from moldau.base.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.metadata.records import ConfigResource
from moldau.share.partition import SharePartition
from moldau.share.ports import ShareKey
from moldau.share.window import ACCEPT
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from shares.ledger import ShareLedger
from shares.member import Member

CHAOS_MS = {"brief": 4_000, "short": 10_000, "small": 25_000, "medium": 60_000, "large": 120_000}
SIZES = {
    name: replace(size, chaos_ms=CHAOS_MS[name], nodes=(3,) if name in ("brief", "short", "small") else size.nodes)
    for name, size in cluster_world.SIZES.items()
}
SMALL = SIZES["small"]
GROUPS = {"workers": ("jobs", 2), "others": ("jobs", 2), "brief": ("fleeting", 1)}
"""What each group reads, and how many members it has."""


@dataclass(slots=True)
class Report(cluster_world.Report):
    deliveries: int
    accepted: int

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        report = cluster_world.Report.shown(reports)
        return (
            f"{report}; records were delivered {sum(each.deliveries for each in reports):,} times to share groups and "
            f"accepted {sum(each.accepted for each in reports):,} times"
        )


class PrunedLedger(Ledger):
    """The ledger of a log whose coordinator deletes what it does not need any more."""

    def begins(self, who: str, offset: int) -> None:
        """It may begin anywhere."""

    def show(self, who: str, header: BatchHeader, batch: memoryview) -> None:
        is_unknown = header.base_offset < self.end and header.base_offset not in self._batches
        if not is_unknown:  # deleted on the first replica before a check saw it there
            self.values += [b""] * (header.base_offset - self.end)
            super().show(who, header, batch)


class SharesWorld(ClusterWorld):
    kind = "shares"
    answers_early = False

    def __init__(self, seed: int, size: Size = SMALL, tail: int = TAIL) -> None:
        self.delivery_limit = self.lock_ms = 0
        self.share_ledger = ShareLedger(self)
        self.members: list[Member] = []
        super().__init__(seed, size, tail)

    def lasting_topics(self) -> list[str]:
        return ["jobs"]

    def more_properties(self, rng: Random) -> dict[str, str]:
        self.delivery_limit, self.lock_ms = rng.randint(2, 5), rng.choice([1_000, 2_000, 5_000])
        properties = {
            "group.share.delivery.count.limit": self.delivery_limit,
            "group.share.record.lock.duration.ms": self.lock_ms,
            "group.share.min.record.lock.duration.ms": 1_000,
            "group.share.session.timeout.ms": 6_000,
            "group.share.min.session.timeout.ms": 6_000,
            "group.share.heartbeat.interval.ms": 1_000,
            "group.share.min.heartbeat.interval.ms": 1_000,
            "group.share.initialize.retry.interval.ms": 2_000,
            "share.coordinator.state.topic.num.partitions": 2,
            "share.coordinator.state.topic.replication.factor": 3,
            "share.coordinator.state.topic.min.isr": 2,
            "share.coordinator.snapshot.update.records.per.snapshot": rng.choice([0, 3, 20]),
            "share.coordinator.state.topic.prune.interval.ms": 2_000,
        }
        return {name: str(value) for name, value in properties.items()}

    def new_ledger(self, topic: str, partition: int) -> Ledger:
        if topic == SHARE_GROUP_STATE_TOPIC:
            return PrunedLedger(f"{topic}-{partition}", self.violated)
        return super().new_ledger(topic, partition)

    # --- clients --------------------------------------------------------------------------------------------------

    def populate(self) -> None:
        rng, size = self.client_rng, self.size
        self.clients.append(self.admin)
        for name in self.topics:
            self.admin.create(name, 1 if name in self.fleeting else rng.randint(1, 2))
            for number in range(1 if name in self.fleeting else size.producers):
                gap_ms = rng.randint(size.gap_ms // 2, size.gap_ms * 2)
                self.producers.append(Producer(self, f"p{number}-{name}", name, Random(rng.random()), gap_ms))
        for group_id in GROUPS:
            self._begin_at_start(group_id)
        self.clients += self.producers
        self._add_members(Random(rng.random()))

    def _add_members(self, rng: Random) -> None:
        """Add the members when every node knows where their groups begin."""
        images = [machine.assembly.current.image for machine in self.machines.values() if machine.assembly is not None]
        if not all(image.configs_of(ConfigResource.GROUP, group_id) for image in images for group_id in GROUPS):
            self.timers.after_ms(10, lambda: self._add_members(rng))
            return
        for group_id, (topic, members) in GROUPS.items():
            for number in range(members):
                self.members.append(Member(self, f"m{number}-{group_id}", group_id, topic, Random(rng.random())))
        self.clients += self.members

    def _begin_at_start(self, group_id: str) -> None:
        """Let a group begin at the first record; retry until that is so."""
        configs = [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(ConfigResource.GROUP, group_id, configs)])

        def then(reply: object) -> None:
            if isinstance(reply, KafkaError) or reply.responses[0].error_code:  # type: ignore[attr-defined]
                self.admin.retry(lambda: self._begin_at_start(group_id))

        self.admin.ask(self.admin.some_broker(), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, then, "admin")

    def stop_clients(self) -> None:
        super().stop_clients()
        for member in self.members:
            member.is_settling = True

    # --- checks ---------------------------------------------------------------------------------------------------

    def run(self) -> cluster_world.Report:
        with self.share_ledger.listening():
            return super().run()

    def shown(self, key: ShareKey) -> str:
        return f"{key.group_id}: {self.image.topic_names.get(key.topic_id, '?')}-{key.partition}"

    def is_replaced(self, share: SharePartition) -> bool:
        """Whether the partition has another leader, perhaps without this one knowing it."""
        topic = self.newest_image().topic_by_id(share.key.topic_id)
        return topic is None or topic.partitions[share.key.partition].leader_epoch != share.leader_epoch

    def check(self) -> None:
        super().check()
        for machine in self.machines.values():
            side = None if machine.assembly is None else machine.assembly.broker_side
            if side is None:
                continue
            for local in side.shares.ready():
                self.share_ledger.check_window(local.share.key, local.share.window)
            for states in side.share_coordinator.shards.ready_machines():
                for key, state in states.states.items():
                    self.share_ledger.check_state(key, state.start_offset, state.batches)
        self.share_ledger.forget_ended()

    def why_not_settled(self) -> str:
        if why := super().why_not_settled():
            return why
        return "" if self.share_ledger.said[ACCEPT] else "no record was accepted"

    def why_not_drained(self) -> str:
        if why := super().why_not_drained():
            return why
        for group_id, (name, _) in GROUPS.items():
            topic = self.image.topics.get(name)
            for index in range(0 if topic is None else len(topic.partitions)):
                assert topic is not None
                end = self.audit.ledger(topic.id, index).end
                known = self.share_ledger.known(ShareKey(group_id, topic.id, index))
                if known.floor < end:
                    return f"{group_id}: {index} is settled up to {known.floor} of {end}"
        return ""

    def report(self) -> Report:
        report = super().report()
        return Report(
            report.seed,
            report.digest,
            report.virtual_ms,
            report.nodes,
            report.starts,
            report.acknowledged,
            report.commits,
            report.batches,
            report.faults,
            self.share_ledger.deliveries,
            self.share_ledger.said[ACCEPT],
        )
