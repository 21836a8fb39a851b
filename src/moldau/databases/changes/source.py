"""Spark's format "moldau-changes": the changes of a table as a stream, or its rows as a batch.

    spark.dataSource.register(ChangesSource)
    spark.readStream.format("moldau-changes").options(url="postgresql://me@host/shop", password=…, table="orders",
                                                      stateDirectory="state/orders").load()

Options: options.py; columns: rows.py. The stream keeps its snapshot in stateDirectory, which the tasks must reach too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from moldau.databases.changes.errors import ChangesError
from moldau.databases.changes.growing import GrowingPiece, GrowingStream, read_growing, read_present
from moldau.databases.changes.offsets import Offset
from moldau.databases.changes.options import ChangeOptions, read_options
from moldau.databases.changes.reading import Piece, read_piece, read_present_rows
from moldau.databases.changes.rows import stream_schema
from moldau.databases.changes.stream import ChangeStream
from moldau.databases.changes.tables import look_up_columns
from moldau.spark.errors.untraced import untraced
from moldau.spark.source import InvalidStream

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "moldau-changes"


class ChangesSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    @untraced(ValueError, ChangesError)
    def schema(self) -> StructType:
        return spark_schema(self._options())

    @untraced(ValueError, ChangesError)
    def reader(self, schema: StructType) -> DataSourceReader:
        return PresentRowsReader(self._options())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = self._options()
            if options.growing is not None:
                return GrowingStreamReader(options)
            _ = options.files
            return ChangesStreamReader(options)
        except ValueError as error:
            return InvalidStream(error)

    def _options(self) -> ChangeOptions:
        options = read_options(self.options)
        if options.columns:
            return options
        return replace(options, columns=look_up_columns(options.address, options.table, options.directory))


def spark_schema(options: ChangeOptions) -> StructType:
    return from_arrow_schema(stream_schema(options.columns), prefer_timestamp_ntz=True)


class PiecePartition(InputPartition):
    def __init__(self, piece: Piece | GrowingPiece) -> None:
        super().__init__(None)
        self.piece = piece


class PresentRowsReader(DataSourceReader):
    """The rows that the table has now, in one task."""

    def __init__(self, options: ChangeOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with untraced(ChangesError):
            is_sqlite = self._options.address.kind == "sqlite"
            yield from read_present(self._options) if is_sqlite else read_present_rows(self._options)


class ChangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One per query, in a Python process beside the driver; only `read` runs in workers."""

    def __init__(self, options: ChangeOptions) -> None:
        self._options = options
        self._stream: ChangeStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_stream": None}

    def _own_stream(self) -> ChangeStream:
        if self._stream is None:
            self._stream = ChangeStream(self._options)
        return self._stream

    def initialOffset(self) -> dict[str, Any]:
        return self._own_stream().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_max)

    @untraced(ValueError, ChangesError)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._own_stream().next_end(Offset.from_json(start), rows_max).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._own_stream().fix_target()

    @untraced(ValueError, ChangesError)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        pieces = self._own_stream().pieces(Offset.from_json(start), Offset.from_json(end))
        return [PiecePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PiecePartition)
        assert not isinstance(partition.piece, GrowingPiece)
        with untraced(ChangesError):
            yield from read_piece(self._options, partition.piece)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()


class GrowingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same for a column that grows."""

    def __init__(self, options: ChangeOptions) -> None:
        self._options = options
        self._stream = GrowingStream(options)

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_max)

    @untraced(ValueError, ChangesError)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._stream.next_end(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    @untraced(ValueError, ChangesError)
    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [PiecePartition(piece) for piece in self._stream.pieces(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PiecePartition)
        assert isinstance(partition.piece, GrowingPiece)
        with untraced(ChangesError):
            yield from read_growing(self._options, partition.piece)
