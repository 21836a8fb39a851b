"""Compiles sinks into flows: rows with the columns of their target, each expression checked against those of the view.

`route` is the SQL expression that gives the topic of each row. A row whose `route` is null, not a legal topic name or a
topic that the pipeline reads, or whose `partition` is negative, fails the query with a message that names the sink and
the expression. Such a row has no bytes to write as a dead letter, and dropping it would lose it silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    VariantType,
)

from moldau.databases.columns import columns_of
from moldau.databases.database import missing_package as missing_driver
from moldau.databases.destinations import Destination, columns_problem
from moldau.databases.sql import table_name
from moldau.databases.urls import parse_url
from moldau.pipelines.locations import local_table
from moldau.pipelines.planning import database_changes
from moldau.pipelines.planning.backends import backend_target, shape_of
from moldau.pipelines.planning.flows import (
    ConsoleTarget,
    DatabaseTarget,
    Flow,
    OutputMode,
    Shape,
    TableTarget,
    Target,
    TopicTarget,
    UpsertTarget,
    unchanged,
)
from moldau.pipelines.planning.output_modes import upsert_mode
from moldau.pipelines.planning.problem_collection import InvalidSetting, ProblemCollection
from moldau.pipelines.planning.python_steps import PythonStepError
from moldau.pipelines.planning.record_schemas import read_avro_schema
from moldau.pipelines.planning.record_values import (
    as_string_or_binary,
    checked_partition,
    checked_topic,
    headers_of,
    row_value,
)
from moldau.pipelines.planning.routes import is_read, written_topics
from moldau.pipelines.planning.sources import format_options, sink_options
from moldau.pipelines.problems import did_you_mean
from moldau.pipelines.spec import (
    BackendSink,
    ConsoleSink,
    DatabaseSink,
    DatabaseSource,
    Pipeline,
    Sink,
    TableSink,
    TopicSink,
    TopicSource,
)
from moldau.spark.lake.schemas import column_named
from moldau.spark.lake.tables import missing_package, path_problem
from moldau.spark.option_values import boolean
from moldau.spark.options import BOOTSTRAP, KAFKA, write_options
from moldau.spark.quoting import quoted_name

DELEGATION_TOKEN: Final = "delegationToken"
LOGIN: Final = (f"{KAFKA}security.", f"{KAFKA}sasl.", f"{KAFKA}ssl.")
"""Prefixes of the settings of TLS and SASL."""
DELETES: Final = "_moldau_deletes"
ORDER_BY: Final = "order_by"
"""An option of an upsert: the column that decides which row of a key is the last."""
COMPOSITE: Final = (ArrayType, MapType, StructType, VariantType)
INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)


class SinkCompiler:
    """Compiles one sink of a pipeline; `path` is its dotted path in the file."""

    def __init__(
        self,
        pipeline: Pipeline,
        path: str,
        sink: Sink,
        frame: DataFrame,
        problems: ProblemCollection,
        reload_modules: bool = True,
    ) -> None:
        self._pipeline, self._path, self._sink, self._frame = pipeline, path, sink, frame
        self._problems, self._reload_modules = problems, reload_modules

    def flow(self) -> Flow | None:
        """Return the flow. If the sink is invalid, return None and add the reasons to the problems."""
        count_before = len(self._problems.found)
        flow: Flow | None = None
        with self._problems.recording(self._path, self._subject):
            if isinstance(self._sink, TopicSink):
                flow = self._to_topic(self._sink)
            elif isinstance(self._sink, TableSink):
                flow = self._to_table(self._sink)
            elif isinstance(self._sink, BackendSink):
                flow = self._to_backend(self._sink)
            elif isinstance(self._sink, DatabaseSink):
                flow = self._to_database(self._sink)
            else:
                flow = self._to_console(self._sink)
        return flow if len(self._problems.found) == count_before else None

    @property
    def _subject(self) -> str:
        return f"sink {self._sink.name}"

    # --- topics -----------------------------------------------------------------------------------------------------

    def _to_topic(self, sink: TopicSink) -> Flow:
        of_changes = database_changes.has_changes(self._frame)
        if sink.envelope and not of_changes:
            raise InvalidSetting(
                f"{self._path}.format",
                f"format {sink.envelope} writes changes of a database, and {sink.view} has not all of their columns",
                "write from a source with `database`, or select its columns beginning with _ too",
            )
        if sink.key is None and of_changes and "_key" in self._frame.columns:
            sink = replace(sink, key="_key")
        columns = {
            "key": self._bytes("key", sink.key),
            "value": self._value(sink),
            "headers": self._headers(sink),
            "topic": self._route(sink),
            "partition": self._partition(sink),
        }
        selected = [column.alias(name) for name, column in columns.items() if column is not None]
        options = sink_options(self._pipeline, sink.name, sink.options)
        self._check_connector_options(options)
        if sink.topic is not None:
            options["topic"] = sink.topic
        description = f"topic {sink.topic}" if sink.route is None else f"topics by {sink.route}"
        target = TopicTarget(self._pipeline.connector, options)
        shape: Shape = lambda rows: rows.select(*selected)  # noqa: E731
        if of_changes and not sink.envelope and sink.value is None:
            shape = lambda rows: database_changes.without_truncations(rows).select(*selected)  # noqa: E731
        return self._make_flow("topic", description, sink.mode, target, shape)

    def _value(self, sink: TopicSink) -> Column | None:
        if sink.envelope:
            return database_changes.debezium_values(self._frame, self._database(sink))
        if sink.value is not None:
            return self._bytes("value", sink.value)
        value = self._row_value(sink)
        if not database_changes.has_changes(self._frame):
            return value
        if sink.key is None:
            message = "the table has no primary key, so no record could say that a row was deleted"
            raise InvalidSetting(f"{self._path}.format", message, "use `format: debezium`, or give the sink a `key`")
        return database_changes.or_tombstone(value)

    def _database(self, sink: TopicSink) -> DatabaseSource | None:
        """Return the database whose changes the sink writes; None if it is not clear."""
        databases = {each.name: each for each in self._pipeline.sources.values() if isinstance(each, DatabaseSource)}
        return databases.get(sink.view) or (next(iter(databases.values())) if len(databases) == 1 else None)

    def _row_value(self, sink: TopicSink) -> Column:
        avro = read_avro_schema(sink.schema_file) if sink.format == "avro" and sink.schema_file is not None else None
        return row_value(self._frame, sink.format, format_options(sink.options), avro)

    def _headers(self, sink: TopicSink) -> Column | None:
        columns = {name: self._bytes(f"headers.{name}", text) for name, text in sink.headers.items()}
        return headers_of({name: each for name, each in columns.items() if each is not None}) if columns else None

    def _route(self, sink: TopicSink) -> Column | None:
        if sink.route is None or (data_type := self._type("route", sink.route)) is None:
            return None
        if not isinstance(data_type, StringType):
            raise self._wrong_type("route", sink.route, data_type, "a string: the name of a topic")
        sources = [
            source
            for source in self._pipeline.sources.values()
            if isinstance(source, TopicSource) and source.is_on_cluster_of(sink)
        ]
        self._refuse_loop(sink.route, sources)
        route = F.expr(sink.route)
        return checked_topic(route, sink.name, sink.route, is_read(route, sources, self._frame.sparkSession))

    def _refuse_loop(self, route: str, sources: Sequence[TopicSource]) -> None:
        for topic in written_topics(self._frame.select(F.expr(route))):
            for source in sources:
                if source.reads(topic):
                    message = f"it writes to '{topic}', which source '{source.name}' reads"
                    raise InvalidSetting(f"{self._path}.route", f"{message}: the pipeline would feed itself")

    def _partition(self, sink: TopicSink) -> Column | None:
        if sink.partition is None or (data_type := self._type("partition", sink.partition)) is None:
            return None
        if not isinstance(data_type, INTEGERS):
            raise self._wrong_type("partition", sink.partition, data_type, "a whole number")
        return checked_partition(F.expr(sink.partition), sink.name, sink.partition)

    def _bytes(self, setting: str, text: str | None) -> Column | None:
        if text is None or (data_type := self._type(setting, text)) is None:
            return None
        return as_string_or_binary(F.expr(text), data_type)

    def _check_connector_options(self, options: Mapping[str, str]) -> None:
        """Check the values of the connector's options now: the connector checks them only after the run has started.

        The login is not checked, as validation needs no passwords. The client properties of Spark's own connector are
        those of the Java client, which checks them.
        """
        checked = {f"{KAFKA}{BOOTSTRAP}": "any:9092"}
        for name, value in options.items():
            is_client_property = name.lower().startswith(KAFKA)
            if not is_client_property or (self._pipeline.connector == "moldau" and not name.lower().startswith(LOGIN)):
                checked[name] = value
        try:
            boolean(DELEGATION_TOKEN, checked.pop(DELEGATION_TOKEN, "false"))
            write_options(checked)
        except ValueError as error:
            raise InvalidSetting(f"{self._path}.options", str(error)) from error

    # --- tables and console -----------------------------------------------------------------------------------------

    def _to_table(self, sink: TableSink) -> Flow:
        if (missing := missing_package(sink.format)) is not None:
            raise InvalidSetting(f"{self._path}.format", missing)
        directory = local_table(sink.path)
        if directory is not None and (problem := path_problem(directory, sink.format)) is not None:
            raise InvalidSetting(f"{self._path}.table", problem)
        partition_by = check_columns(self._frame, sink.partition_by, f"{self._path}.partition_by")
        description = f"{sink.format} table {sink.path}"
        if sink.mode == "upsert":
            return self._upsert(sink, partition_by, description)
        mode: OutputMode = "complete" if sink.mode == "complete" else "append"
        target = TableTarget(sink.path, sink.format, partition_by, sink.options, sink.mode == "complete")
        return self._make_flow("table", description, mode, target)

    def _upsert(self, sink: TableSink, partition_by: tuple[str, ...], description: str) -> Flow:
        frame = self._frame
        keys = self._comparable_columns("keys", sink.keys, "a key")
        shape, delete_column = self._deletes(sink.delete_when)
        order_by = self._order_by(sink.options)
        target = UpsertTarget(sink.path, sink.format, partition_by, keys, delete_column, order_by)
        mode = upsert_mode(frame) if frame.isStreaming else "append"
        return self._make_flow("table", description, mode, target, shape)

    def _deletes(self, condition: str | None) -> tuple[Shape, str | None]:
        """Return the function that adds the column of deletions, and its name; None without `delete_when`."""
        if condition is None or (data_type := self._type("delete_when", condition)) is None:
            return unchanged, None
        if not isinstance(data_type, BooleanType):
            raise self._wrong_type("delete_when", condition, data_type, "a condition")
        return _with_deletes(condition), DELETES

    def _order_by(self, options: Mapping[str, str]) -> str | None:
        if ORDER_BY not in options:
            return None
        (order_by,) = self._comparable_columns(f"options.{ORDER_BY}", (options[ORDER_BY],), ORDER_BY)
        return order_by

    def _to_database(self, sink: DatabaseSink) -> Flow:
        url = parse_url(sink.database)
        if (missing := missing_driver(url.kind)) is not None:
            raise InvalidSetting(f"{self._path}.database", missing)
        with_deletes, delete_column = self._deletes(sink.delete_when)
        nested = tuple(field.name for field in self._frame.schema.fields if isinstance(field.dataType, COMPOSITE))
        destination = Destination(
            url=url,
            table=table_name(sink.table),
            mode=sink.mode,
            keys=self._comparable_columns("keys", sink.keys, "a key"),
            delete_column=delete_column,
            order_by=self._order_by(sink.options),
            json_columns=nested,
            add_columns=boolean("add_columns", sink.options.get("add_columns", "false")),
        )

        def shape(rows: DataFrame) -> DataFrame:
            return with_json(with_deletes(rows), nested)

        schema = arrow_schema(shape(self._frame).schema, self._path)
        if problem := columns_problem(destination, columns_of(schema, nested)):
            raise InvalidSetting(self._path, problem)
        mode: OutputMode = "append"
        if sink.mode != "append" and self._frame.isStreaming:
            mode = upsert_mode(self._frame)
        return self._make_flow("database", f"table {sink.output}", mode, DatabaseTarget(destination), shape)

    def _comparable_columns(self, setting: str, names: tuple[str, ...], role: str) -> tuple[str, ...]:
        """Return the columns with their names in the view. Values of several parts cannot be compared."""
        columns = check_columns(self._frame, names, f"{self._path}.{setting}")
        for index, column in enumerate(columns):
            data_type = self._frame.schema[column].dataType
            if isinstance(data_type, COMPOSITE):
                message = f"column {column} is {data_type.simpleString()}, and {role} must be a single value"
                raise InvalidSetting(f"{self._path}.{setting}.{index}", message)
        return columns

    def _to_console(self, sink: ConsoleSink) -> Flow:
        rows = sink.options.get("rows", sink.options.get("numRows", "20"))
        if not re.fullmatch(r"[0-9]{1,6}", rows):
            raise InvalidSetting(f"{self._path}.options", f"rows must be a whole number up to 999999, not {rows!r}")
        truncate = sink.options.get("truncate", "true").lower() == "true"
        return self._make_flow("console", "console", sink.mode, ConsoleTarget(sink.name, int(rows), truncate))

    # --- backends ---------------------------------------------------------------------------------------------------

    def _to_backend(self, sink: BackendSink) -> Flow:
        try:
            target = backend_target(self._pipeline, sink, self._reload_modules)
        except PythonStepError as error:
            raise InvalidSetting(f"{self._path}.backend", str(error)) from error
        shape = shape_of(sink, self._frame, self._bytes)
        return self._make_flow("backend", f"backend {sink.backend}", sink.mode, target, shape)

    # --- all sinks --------------------------------------------------------------------------------------------------

    def _make_flow(
        self, kind: str, description: str, mode: OutputMode, target: Target, shape: Shape = unchanged
    ) -> Flow:
        sink = self._sink
        return Flow(
            name=sink.name,
            kind=kind,  # type: ignore[arg-type]
            place=sink.place,
            view=sink.view,
            description=description,
            frame=shape(self._frame),
            shape=shape,
            mode=mode,
            trigger=sink.trigger or self._pipeline.trigger,
            target=target,
        )

    def _type(self, setting: str, text: str) -> DataType | None:
        """Return the type of an expression over the view's columns, or add a problem and return None."""
        types: list[DataType] = []
        with self._problems.recording(f"{self._path}.{setting}", f"{self._subject}: {setting}", text):
            types = [field.dataType for field in self._frame.select(F.expr(text)).schema.fields]
        return types[0] if types else None

    def _wrong_type(self, setting: str, text: str, data_type: DataType, expected: str) -> InvalidSetting:
        return InvalidSetting(
            f"{self._path}.{setting}", f"{setting} {text} is {data_type.simpleString()}, and must be {expected}"
        )


def with_json(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the frame with JSON texts in the columns whose values have parts."""
    for name in columns:
        frame = frame.withColumn(name, F.to_json(F.col(quoted_name(name))))
    return frame


def arrow_schema(schema: StructType, path: str) -> pa.Schema:
    """Return the schema in which Spark gives the rows. Raise InvalidSetting for a type that Arrow lacks."""
    for field in schema.fields:
        try:
            to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkException as error:
            kind = field.dataType.simpleString()
            message = f"column {field.name} is {kind}, for which databases have no type: cast it in SQL"
            raise InvalidSetting(path, message) from error
    return to_arrow_schema(schema, timezone="UTC")


def _with_deletes(condition: str) -> Shape:
    return lambda rows: rows.withColumn(DELETES, F.expr(condition))


def check_columns(frame: DataFrame, names: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Return the columns with their names in the frame. Raise InvalidSetting for a name that is none."""
    return tuple(check_column(frame, name, f"{path}.{index}") for index, name in enumerate(names))


def check_column(frame: DataFrame, name: str, path: str) -> str:
    """Return the column with its name in the frame: case does not matter, as in Spark. Raise InvalidSetting for a name
    that is not a column of the frame."""
    column = column_named(frame.columns, name)
    if column is None:
        suggestion = did_you_mean(name, frame.columns) or f"; there are {', '.join(frame.columns)}"
        raise InvalidSetting(path, f"there is no column {name}{suggestion}")
    return column
