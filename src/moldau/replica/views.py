"""The views of this node: finds the partition of a view, which exists as soon as somebody reads it.

What reads expressions is imported for the first view, which takes some ten milliseconds of the loop once. Most nodes
have no views, and start without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.base.clock import Clock, Timers
from moldau.base.ids import TopicPartition, Uuid
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.replica.partition import Partition
from moldau.replica.traffic import Traffic
from moldau.replica.view_counts import ReportFailure, ViewCounts
from moldau.views.jobs import EvaluatesViews
from moldau.views.shown_runs import ResultBudget

if TYPE_CHECKING:
    from moldau.replica.view_partition import ViewPartition
    from moldau.views.definition import ViewDefinition
    from moldau.views.field_ranges import RunIndex

FindPartition = Callable[[str, int], Partition | None]


class Views:
    def __init__(
        self,
        evaluator: EvaluatesViews,
        budget: ResultBudget,
        report: ReportFailure,
        traffic: Traffic,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._evaluator = evaluator
        self._budget = budget
        self._report = report
        self._traffic = traffic
        self._clock = clock
        self._timers = timers
        self._open: dict[str, dict[int, ViewPartition]] = {}
        self._indexes: dict[tuple[Uuid, int], dict[tuple[str, ...] | None, RunIndex]] = {}
        """By the source's id and partition, then by format: who reads the values in another way finds other fields."""
        self._definitions: dict[str, ViewDefinition | None] = {}
        self.counts: dict[str, ViewCounts] = {}

    def find(self, image: MetadataImage, view: str, index: int, find_source: FindPartition) -> ViewPartition | None:
        source_id = image.views.get(view)
        name = None if source_id is None else image.topic_names.get(source_id)
        source = None if name is None else find_source(name, index)
        if source is None or source.topic_id != source_id:
            return None
        partitions = self._open.setdefault(view, {})
        partition = partitions.get(index)
        if partition is None or partition.source is not source:
            if partition is not None:
                partition.close()
            definition = self._definition(image, view)
            if definition is None:
                return None
            from moldau.replica.view_partition import ViewPartition
            from moldau.views.field_ranges import RunIndex

            counts = self.counts.setdefault(view, ViewCounts(self._report))
            partition = partitions[index] = ViewPartition(
                TopicPartition(view, index),
                image.topics[view].id,
                source,
                definition,
                self._evaluator,
                self._budget,
                self._indexes.setdefault((source.topic_id, index), {}).setdefault(definition.csv_columns, RunIndex()),
                counts,
                self._traffic.of(view),
                self._clock,
                self._timers,
            )
        return partition

    def _definition(self, image: MetadataImage, view: str) -> ViewDefinition | None:
        if view not in self._definitions:
            from moldau.views.definition import view_definition
            from moldau.views.parser import BadExpression

            try:
                self._definitions[view] = view_definition(image.configs_of(ConfigResource.TOPIC, view))
            except BadExpression as wrong:  # written by a newer controller
                self._report(f"view {view}: {wrong}")
                self._definitions[view] = None
        return self._definitions[view]

    def on_image(self, changes: Changes) -> None:
        """Forget the views that were deleted, and those whose source was."""
        removed = {topic.id for topic in changes.removed}
        for topic in changes.removed:
            self._definitions.pop(topic.name, None)
            self.counts.pop(topic.name, None)
            if topic.is_view:
                self._traffic.forget(topic.name)
            for partition in self._open.pop(topic.name, {}).values():
                partition.close()
        if removed:
            for partitions in self._open.values():
                for index in [i for i, each in partitions.items() if each.source.topic_id in removed]:
                    partitions.pop(index).close()
            self._drop_indexes()

    def on_source_closed(self, source: Partition) -> None:
        """This node has the source's partition no longer: keep nothing that refers to its log."""
        index = source.name.partition
        for view, partitions in self._open.items():
            partition = partitions.get(index)
            if partition is not None and partition.source is source:
                partitions.pop(index).close()
                if not partitions:
                    self._traffic.forget(view)
        self._indexes.pop((source.topic_id, index), None)

    def _drop_indexes(self) -> None:
        """Drop the indexes that no open partition uses."""
        used = {id(partition.index) for partitions in self._open.values() for partition in partitions.values()}
        for key, indexes in list(self._indexes.items()):
            left = {columns: index for columns, index in indexes.items() if id(index) in used}
            if left:
                self._indexes[key] = left
            else:
                del self._indexes[key]

    def close(self) -> None:
        self._evaluator.close()
