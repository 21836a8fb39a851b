"""A cluster with views of topics in use: leaders move, logs are compacted, records and sources are deleted, and the
evaluation of views fails now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from cluster import world as cluster_world
from cluster.ledger import Ledger
from compaction.world import CompactionWorld
from machines.world import TAIL

from moldau.base.ids import Uuid
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.log.reading import Slice, first_batch
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.replica import view_partition
from moldau.runtime.views.ports import ViewsInThread
from moldau.views.definition import ViewDefinition
from moldau.views.jobs import Evaluated, EvaluatesViews, ViewFailed
from views.cases import CASES, Case
from views.clients import JsonProducer, JsonTransactionalProducer, SourceLedger, ViewAdmin
from views.reader import ViewReader

if TYPE_CHECKING:
    from moldau.views.engine import Engine

CHAOS_MS = {"brief": 2_000, "short": 5_000, "small": 10_000, "medium": 40_000, "large": 90_000}
SIZES = {name: replace(size, chaos_ms=CHAOS_MS[name]) for name, size in cluster_world.SIZES.items()}
SMALL = SIZES["small"]
RUN_BYTES = 1_500
"""Of the source, instead of 8 MiB: some batches."""
KEPT_BYTES = 8_000
"""Results of a few runs: others are evicted."""
FAILURES = 0.05


class KnownView(NamedTuple):
    source_id: Uuid
    case: Case


@dataclass(slots=True)
class Report(cluster_world.Report):
    passes: int
    shown_records: int
    evaluations: int

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        report = cluster_world.Report.shown(reports)
        return (
            f"{report}; views were read {sum(each.passes for each in reports):,} times and showed "
            f"{sum(each.shown_records for each in reports):,} records, in "
            f"{sum(each.evaluations for each in reports):,} evaluations"
        )


@cache
def _engine() -> Engine:
    """The engine of all nodes and runs: it has no state, and one for each process would cost time."""
    from moldau.views.engine import Engine  # other simulations do not load DuckDB

    return Engine()


class FailingViews(ViewsInThread):
    """Evaluates views in the node's thread; now and then the worker is killed, or the run is too large for it."""

    def __init__(self, world: ViewsWorld, run_in_thread: RunInThread) -> None:
        super().__init__(run_in_thread)
        self._world = world

    def evaluate(
        self, view: str, definition: ViewDefinition, records: Slice, partition: int
    ) -> Promise[Evaluated | ViewFailed]:
        world = self._world
        world.evaluations += 1
        is_failing = world.view_rng.random() < FAILURES and not world.faults.is_over
        self._engine = _engine()
        done = super().evaluate(view, definition, records, partition)
        if not is_failing:
            return done
        is_divisible = first_batch(records).size_in_bytes < records.length
        world.faults.count(
            "a run of a view is too large to evaluate" if is_divisible else "a view's worker is killed", view
        )
        failed = ViewFailed("on purpose", is_divisible=is_divisible, is_retriable=not is_divisible)
        return done.map(lambda _: failed)


class ViewsWorld(CompactionWorld):
    kind = "views"

    def __init__(self, seed: int, size: cluster_world.Size = SMALL, tail: int = TAIL) -> None:
        self.views = {"view-0": "table-0", "view-1": "stream", "view-2": "stream", "view-3": "fleeting"}
        """The names of the views, with those of their sources."""
        self.known_views: dict[Uuid, KnownView] = {}
        self.view_readers: list[ViewReader] = []
        self.view_rng = Random(f"views of {seed}")
        self.evaluations = 0
        super().__init__(seed, size, tail)

    def lasting_topics(self) -> list[str]:
        return ["table-0", "stream"]

    def more_properties(self, rng: Random) -> dict[str, str]:
        return super().more_properties(rng) | {"moldau.views.kept.bytes": str(KEPT_BYTES)}

    def topic_configs(self, name: str) -> dict[str, str]:
        if name == "stream" and not self.has_retention:
            return {"segment.ms": "700"}
        return super().topic_configs(name)

    def new_ledger(self, topic: str, partition: int) -> Ledger:
        if topic.startswith("__"):
            return super().new_ledger(topic, partition)
        return SourceLedger(f"{topic}-{partition}", self.violated)

    def views_of(self, run_in_thread: RunInThread) -> EvaluatesViews:
        return FailingViews(self, run_in_thread)

    def run(self) -> cluster_world.Report:
        with (
            mock.patch.object(view_partition, "RUN_BYTES", RUN_BYTES),
            mock.patch.object(view_partition, "RUN_BYTES_MIN", 1),
        ):
            return super().run()

    def newest_image(self) -> MetadataImage:
        image = super().newest_image()
        for name, source_id in image.views.items():
            view_id = image.topics[name].id
            if view_id not in self.known_views:
                configs = image.configs_of(ConfigResource.TOPIC, name)
                where = configs["moldau.view.where"]
                case = next(case for case in CASES.values() if case.configs["where"] == where)
                self.known_views[view_id] = KnownView(source_id, case)
        return image

    def source_ledger(self, view_id: Uuid, partition: int) -> SourceLedger:
        ledger = self.audit.ledger(self.known_views[view_id].source_id, partition)
        assert isinstance(ledger, SourceLedger)
        return ledger

    # --- clients --------------------------------------------------------------------------------------------------

    def populate(self) -> None:
        rng, size = self.client_rng, self.size
        self.clients.append(self.admin)
        for name in self.topics:
            self.admin.create(name, 1 if name in self.fleeting else rng.randint(1, 2))
            gap_ms = rng.randint(size.gap_ms, size.gap_ms * 2)
            self.producers.append(JsonProducer(self, f"k-{name}", name, Random(rng.random()), gap_ms))
        self.add_id_owner("x", self.lasting_topics(), JsonTransactionalProducer)
        self.clients.append(ViewAdmin(self, "view-admin", Random(rng.random())))
        for number, view in enumerate(self.views):
            for isolation_level in (0, 1) if view == "view-1" else (number % 2,):
                name = f"r{isolation_level}-{view}"
                self.view_readers.append(ViewReader(self, name, view, isolation_level, Random(rng.random())))
        self.clients += [*self.producers, *self.view_readers]
        if self.table_admin is not None:
            self.clients.append(self.table_admin)

    # --- checks ---------------------------------------------------------------------------------------------------

    def why_not_drained(self) -> str:
        if why := super().why_not_drained():
            return why
        for view, source in self.views.items():
            topic = self.image.topics.get(source)
            shown = self.image.topics.get(view)
            if topic is not None and (shown is None or self.known_views[shown.id].source_id != topic.id):
                return f"{view} is not recreated"
        for reader in self.view_readers:
            topic = self.image.topics.get(reader.topic)
            for index in range(0 if topic is None else len(topic.partitions)):
                assert topic is not None
                end = self.source_ledger(topic.id, index).end
                read_up_to = reader.read_up_to.get((topic.id, index), 0)
                if read_up_to < end:
                    return f"{reader.name} has read all of {index} only up to {read_up_to} of {end}"
        return ""

    def judge(self) -> None:
        super().judge()
        for reader in self.view_readers:
            reader.judge()

    def report(self) -> Report:
        report = cluster_world.ClusterWorld.report(self)
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
            sum(reader.passes for reader in self.view_readers),
            sum(reader.shown for reader in self.view_readers),
            self.evaluations,
        )
