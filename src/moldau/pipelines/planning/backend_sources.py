"""Makes views of sources that are classes of the user: streams and batches, with a task of Spark for each partition.

Each source is a format of its own in the session, because Spark makes readers from a class without arguments of ours.
The ends of a micro-batch are found beside the driver, so its rows are read twice there and in a task; no rows are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from moldau.backends.interface import BackendSource as Source
from moldau.backends.reading import ROWS_MAX, all_ends, next_ends, rows_of_range
from moldau.pipelines.planning import python_steps
from moldau.pipelines.planning.sources import Mode
from moldau.pipelines.spec import BackendSource, Pipeline

Make = Callable[[], Source]


class Part(InputPartition):
    """The range of one partition that one task reads."""

    def __init__(self, partition: str, start: Any, end: Any) -> None:
        super().__init__(None)
        self.partition, self.start, self.end = partition, start, end


def backend_rows(
    session: SparkSession, pipeline: Pipeline, source: BackendSource, schema: StructType, mode: Mode, reload: bool
) -> DataFrame:
    """Return the rows of a source. Raises PythonStepError if its class cannot be loaded."""
    format_ = _format(pipeline, source, schema, reload)
    session.dataSource.register(format_)
    read: Any = session.read if mode is Mode.BATCH else session.readStream
    frame: DataFrame = read.format(format_.name()).load()
    return frame


def _format(pipeline: Pipeline, source: BackendSource, schema: StructType, reload: bool) -> type[DataSource]:
    module, class_name = source.user_class
    make_class = python_steps.class_of(module, class_name, pipeline.file.parent, reload=reload)
    args, rows_max = dict(source.args), source.max_per_trigger or ROWS_MAX
    digest = hashlib.sha256(f"{pipeline.file} {source.name}".encode()).hexdigest()[:12]

    def make() -> Source:
        made: Source = make_class(**args)
        return made

    class Rows(DataSource):
        """Pickled with the user's class, as it is made in a function."""

        @classmethod
        def name(cls) -> str:
            return f"moldau-source-{digest}"

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return BackendReader(make, schema.names)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return BackendStreamReader(make, schema.names, rows_max)

    return Rows


def _tuples(make: Make, names: Sequence[str], part: InputPartition) -> Iterator[tuple[Any, ...]]:
    """Read one partition in a task. For a batch without rows PySpark passes a placeholder: nothing is read."""
    if isinstance(part, Part):
        for row in rows_of_range(make(), part.partition, part.start, part.end):
            yield tuple(row.get(name) for name in names)


@dataclass
class BackendReader(DataSourceReader):
    make: Make
    names: Sequence[str]

    def partitions(self) -> Sequence[InputPartition]:
        return [Part(partition, None, None) for partition in self.make().partitions()]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return _tuples(self.make, self.names, partition)


class BackendStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One per query, in a Python process beside the driver; only `read` runs in workers."""

    def __init__(self, make: Make, names: Sequence[str], rows_max: int) -> None:
        self._make, self._names, self._rows_max = make, names, rows_max
        self._source: Source | None = None
        self._target: Mapping[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_source": None}

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return dict(all_ends(self._opened(), start) if self._target is None else self._target)
        return dict(next_ends(self._opened(), start, self._rows_max, self._target))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = all_ends(self._opened(), {})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        moved = [name for name, position in end.items() if position != start.get(name)]
        return [Part(name, start.get(name), end[name]) for name in moved]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return _tuples(self._make, self._names, partition)

    def _opened(self) -> Source:
        if self._source is None:
            self._source = self._make()
        return self._source
