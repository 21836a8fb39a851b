"""The rows of a batch, which can be read several times, in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

PART_BYTES: Final = 8 << 20
"""Rows are sent to a database in parts of about this size."""
PART_ROWS: Final = 16_384


class Rows(Protocol):
    @property
    def schema(self) -> pa.Schema: ...

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order, with some columns or all."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in memory."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self.table.schema
        return schema

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        table = self.table if columns is None else self.table.select(list(columns))
        for batch in table.to_batches():
            yield from smaller(batch)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows in Arrow files (IPC). Reading some columns decompresses only these."""

    schema: pa.Schema
    files: tuple[str, ...]

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = list(self.schema.names if columns is None else columns)
        options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in names])
        for file in self.files:
            with pa.memory_map(file) as source, pa.ipc.open_file(source, options=options) as reader:
                for index in range(reader.num_record_batches):
                    yield from smaller(reader.get_batch(index).select(names))


def smaller(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in parts; a row that is larger than a part is one."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.get_total_buffer_size() // batch.num_rows)
    step = max(1, min(PART_ROWS, PART_BYTES // row_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
