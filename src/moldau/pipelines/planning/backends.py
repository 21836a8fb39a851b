"""Compiles a sink that is a backend: its expressions, the class, and the target that Spark's tasks deliver to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from moldau.backends.catalog import KINDS, secrets_of
from moldau.backends.delivery import Delivery
from moldau.backends.interface import Backend
from moldau.backends.options import Options
from moldau.backends.progress_files import forget_other_batches
from moldau.client.secret_properties import secret_values
from moldau.pipelines.planning import python_steps
from moldau.pipelines.planning.backend_rows import DEAD_LETTER_SCHEMA, Batch, Delivering, columns_of
from moldau.pipelines.planning.flows import OutputMode, Shape, write_batches
from moldau.pipelines.planning.record_values import row_value
from moldau.pipelines.planning.sources import sink_options
from moldau.pipelines.spec import DROP, FAIL, BackendSink, Pipeline
from moldau.spark.lake import BatchTag
from moldau.spark.mapped_batches import map_batches
from moldau.spark.quoting import quoted_name

if TYPE_CHECKING:
    import pyarrow as pa

DELIVERY: Final = "deliveryGuarantee"


@dataclass(frozen=True, slots=True)
class BackendTarget:
    """Gives the rows of each batch to a backend, in tasks, and writes dead letters to their topic at least once."""

    delivering: Delivering
    connector: str
    dead_letter_options: Mapping[str, str] | None = field(repr=False)
    """Of the connector; None if there is no topic for dead letters."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return write_batches(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        batch, deliver = Batch(tag.query_id, tag.batch_id, state), self.delivering.deliver

        def send(record_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return deliver(batch, record_batches)

        forget_other_batches(state, batch.name)
        letters = map_batches(frame.coalesce(self.delivering.delivery.tasks), send, DEAD_LETTER_SCHEMA)
        if self.dead_letter_options is None:
            letters.write.format("noop").mode("overwrite").save()
        else:
            letters.write.format(self.connector).options(**self.dead_letter_options).mode("append").save()


def backend_target(pipeline: Pipeline, sink: BackendSink, reload: bool) -> BackendTarget:
    """Raises PythonStepError if the user's class cannot be loaded. `reload` loads its module again from its file."""
    topic = sink.dead_letter_topic
    options = None
    if topic is not None:
        at_least_once = {DELIVERY: "at-least-once"} if pipeline.connector == "moldau" else {}
        options = sink_options(pipeline, sink.name, {}) | at_least_once | {"topic": topic}
        options.pop("transactionalIdPrefix", None)
    delivering = Delivering(
        sink=sink.name,
        pipeline=pipeline.name,
        make=_maker(pipeline, sink, reload),
        delivery=sink.delivery,
        drops=sink.dead_letter == DROP,
        fails=sink.dead_letter == FAIL,
        secrets=secrets_of(sink.url, sink.options, sink.args) | secret_values(sink.options),
    )
    return BackendTarget(delivering, pipeline.connector, options)


def shape_of(sink: BackendSink, frame: DataFrame, expression: Callable[[str, str], Column | None]) -> Shape:
    """Return the function from the view to the rows that are sent. `expression` compiles an expression of the file; it
    returns None after it has recorded a problem."""
    key = None if sink.key is None else expression("key", sink.key)
    headers = {name: expression(f"headers.{name}", text) for name, text in sink.headers.items()}
    parts = values_of(sink, frame, expression)
    columns = columns_of(
        frame,
        key,
        {name: each for name, each in parts.items() if each is not None},
        {name: each for name, each in headers.items() if each is not None},
    )
    return lambda rows: rows.select(*columns)


def values_of(
    sink: BackendSink, frame: DataFrame, expression: Callable[[str, str], Column | None]
) -> dict[str, Column | None]:
    """Return the parts by name; for a class of the user the columns of the view."""
    kind = KINDS.get(sink.backend)
    if kind is None:
        return {name: F.col(quoted_name(name)) for name in frame.columns}
    parts = {name: expression(name, text) for name, text in sink.parts.items()}
    if kind.default is not None and kind.default not in parts:
        parts[kind.default] = row_value(frame, "json", {}, None)
    return parts


def _maker(pipeline: Pipeline, sink: BackendSink, reload: bool) -> Callable[[], Backend]:
    """Return what makes the backend in a task."""
    if sink.user_class is None:
        return _OfCatalog(sink.backend, sink.url, dict(sink.options), sink.delivery)
    module, name = sink.user_class
    class_ = python_steps.class_of(module, name, pipeline.file.parent, reload=reload)
    args = dict(sink.args)
    return lambda: _checked(class_(**args), name)


@dataclass(frozen=True, slots=True)
class _OfCatalog:
    """Makes a backend of Moldau's."""

    name: str
    url: str = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    delivery: Delivery

    def __call__(self) -> Backend:
        return KINDS[self.name].prepare(self.url, Options(self.options), self.delivery)()


def _checked(backend: Backend, name: str) -> Backend:
    missing = [method for method in ("open", "write", "close") if not callable(getattr(backend, method, None))]
    if missing:
        raise TypeError(f"the backend {name} has no method {missing[0]}")
    return backend
