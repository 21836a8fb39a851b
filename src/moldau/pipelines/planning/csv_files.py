"""Reads CSV files with a header: the columns of the schema are found by their names, in any order.

Spark itself assigns the columns of a schema by position and does not look at the header: columns in another order get
each other's values, and a column that the file lacks is null. Spark's option `enforceSchema: true` brings that back,
for a schema that gives the columns other names; without a header (`header: false`) columns are always by position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from moldau.pipelines.planning.record_schemas import ddl_schema
from moldau.pipelines.problems import did_you_mean
from moldau.pipelines.spec import FileSource
from moldau.spark.quoting import quoted_name


class MissingColumn(ValueError):
    """The header of a file lacks a column of the schema."""

    def __init__(self, column: str, file: str, header: Sequence[str]) -> None:
        super().__init__(f"there is no column {column} in the header of {file}{did_you_mean(column, header)}")
        self.column = column
        self.hint = f"the header has: {', '.join(header)}; `options: {{enforceSchema: true}}` takes columns by position"


def has_named_columns(source: FileSource) -> bool:
    """Return whether the columns of the schema are found by their names in the header."""
    if source.format != "csv" or (source.schema is None and source.schema_file is None):
        return False
    options = {name.lower(): value.lower() for name, value in source.options.items()}
    return options.get("header", "true") == "true" and not {"enforceschema", "singlevariantcolumn"} & options.keys()


def strict_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which Spark fails at a file whose header has other names than the schema."""
    return {**options, "enforceSchema": "false"}


def read_csv(session: SparkSession, source: FileSource, options: Mapping[str, str]) -> DataFrame:
    """Return the columns of the source's schema. Raises MissingColumn.

    The header is that of the first file. If others differ from it, the query that reads them fails.
    """
    schema = ddl_schema(source)
    as_strings = session.read.format("csv").options(**options).option("inferSchema", "false").load(source.path)
    reader = session.read.format("csv")
    if not as_strings.columns:  # the files are empty
        return reader.options(**options).schema(schema).load(source.path)
    corrupt = _corrupt_record_column(session, options)
    column_of = find_columns(source.path, as_strings.columns, [name for name in schema.names if name != corrupt])
    fields = {column_of[field.name]: field.dataType for field in schema.fields if field.name in column_of}
    in_file = [StructField(name, fields.get(name, StringType())) for name in as_strings.columns]
    added = [field for field in schema.fields if field.name not in column_of]
    several = len(as_strings.inputFiles()) > 1
    configured = reader.options(**strict_options(options) if several else options)
    rows = configured.schema(StructType([*in_file, *added])).load(source.path)
    return rows.select(*(F.col(quoted_name(column_of.get(name, name))).alias(name) for name in schema.names))


def find_columns(file: str, header: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """Return the column of the header for each name: the one with just this name, or else the first one, ignoring case
    as SQL does, and white space around it.

    Raises MissingColumn."""
    by_folded = {column.strip().casefold(): column for column in reversed(header)}
    for name in names:
        if name.strip().casefold() not in by_folded:
            raise MissingColumn(name, file, header)
    return {name: name if name in header else by_folded[name.strip().casefold()] for name in names}


def _corrupt_record_column(session: SparkSession, options: Mapping[str, str]) -> str | None:
    """Return the column in which Spark puts a line that does not parse: no file has it."""
    given = {name.lower(): value for name, value in options.items()}.get("columnnameofcorruptrecord")
    return given or session.conf.get("spark.sql.columnNameOfCorruptRecord")
