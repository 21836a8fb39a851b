"""Reads Avro values into rows and writes rows as Avro, inside Spark: fastavro over Arrow columns, a row or an error
for each record.

A value is the bare Avro encoding; with the framing of schema registries, five bytes precede it:

    0x00, schema id (four bytes, big-endian), Avro

The id is ignored: the pipeline's schema file is used as the writer's schema. This runs in Spark's Python workers.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from moldau.pipelines.planning.arrow_functions import arrow_function
from moldau.pipelines.planning.avro_types import Avro
from moldau.pipelines.planning.rejection_reasons import EMPTY

FRAME_LENGTH: Final = 5
ROW: Final = "row"
ERROR: Final = "error"


class Read(NamedTuple):
    """The result of reading one value. A null value has neither row nor error."""

    row: dict[str, Any] | None
    error: str | None


def read_column(value: Column, avro: Avro, schema: StructType, is_framed: bool) -> Column:
    """Return a struct for each value: `row` (null if it is bad) and `error` (null if it is good)."""
    result = StructType([StructField(ROW, schema), StructField(ERROR, StringType())])
    arrow_row = to_arrow_type(schema, timezone="UTC")

    def read(values: pa.Array) -> pa.Array:
        return read_all(values.to_pylist(), fastavro.parse_schema(avro), arrow_row, is_framed)

    return arrow_function(read, result, is_costly=True)(value)


def write_column(row: Column, avro: Avro) -> Column:
    """Return each struct as a bare Avro value. A row that does not fit fails the query, with the field in the error."""

    def write(rows: pa.Array) -> pa.Array:
        parsed = fastavro.parse_schema(avro)
        return pa.array([None if each is None else write_one(each, parsed) for each in rows.to_pylist()], pa.binary())

    return arrow_function(write, "binary")(row)


def read_all(values: Sequence[bytes | None], avro: Avro, arrow_row: pa.DataType, is_framed: bool) -> pa.Array:
    results = [Read(None, None) if value is None else read_one(value, avro, is_framed) for value in values]
    # Arrow refuses the whole column if one value is out of its type's range. Only then each row is tried alone.
    try:
        rows = pa.array([each.row for each in results], arrow_row)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        results = [_check_range(each, arrow_row) for each in results]
        rows = pa.array([each.row for each in results], arrow_row)
    errors = pa.array([each.error for each in results], pa.string())
    return pa.StructArray.from_arrays([rows, errors], names=[ROW, ERROR])


def read_one(value: bytes, avro: Avro, is_framed: bool) -> Read:
    if not value:
        return Read(None, EMPTY)
    if is_framed and (len(value) < FRAME_LENGTH or value[0] != 0):
        return Read(None, "no schema registry header: the value does not begin with 0x00 and a schema id")
    body = io.BytesIO(value)
    body.seek(FRAME_LENGTH if is_framed else 0)
    try:
        row: Any = fastavro.schemaless_reader(body, avro, None)
    except Exception as error:  # bytes can make the decoder raise anything, and then the record is bad
        return Read(None, f"not Avro: {_error_text(error)}")
    surplus = len(value) - body.tell()
    if surplus:
        return Read(None, f"not Avro of this schema: {surplus} bytes are left over")
    return Read(row, None)


def write_one(row: dict[str, Any], avro: Avro) -> bytes:
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(written, avro, row, strict_allow_default=True)
    except Exception as error:
        # Spark shows the whole chain of exceptions to the user, and fastavro's has nothing more to say.
        raise ValueError(f"a row does not fit the Avro schema: {_error_text(error)}") from None
    return written.getvalue()


def _check_range(read: Read, arrow_row: pa.DataType) -> Read:
    try:
        pa.array([read.row], arrow_row)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        return Read(None, f"out of range: {_error_text(error)}")
    return read


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split())[:120]
    name = "it ends too early" if isinstance(error, EOFError) else type(error).__name__
    return f"{name}: {text}" if text and not isinstance(error, EOFError) else name
