"""Which rows of a batch are the last of their key. Only the columns of keys and of the order are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from moldau.databases.rows import Rows

_ROW = "__moldau_row"


class LastRows:
    """The rows of `rows` without those that a later row of the same key replaces: the one with the highest `order_by`
    (nulls are lowest), of equal rows the last. `positions` are the numbers of all rows of a part in the batch."""

    def __init__(self, rows: Rows, keys: Sequence[str], order_by: str | None) -> None:
        self._rows = rows
        self._kept = _last_of_each_key(rows, keys, order_by)

    def parts(self) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        begin = 0
        for part in self._rows.parts():
            kept = self._kept.slice(begin, part.num_rows)
            positions = pc.indices_nonzero(kept)
            if len(positions):
                rows = part if len(positions) == part.num_rows else part.take(positions)
                yield rows, pc.add(positions.cast(pa.int64()), begin)
            begin += part.num_rows


def _last_of_each_key(rows: Rows, keys: Sequence[str], order_by: str | None) -> pa.BooleanArray:
    """Return for each row whether it is the last of its key."""
    needed = list(dict.fromkeys([*keys, *([order_by] if order_by else [])]))
    table = pa.Table.from_batches(rows.parts(needed), pa.schema([rows.schema.field(name) for name in needed]))
    numbers = pa.array(range(table.num_rows), pa.int64())
    if order_by is not None and order_by not in keys:
        column = table.column(order_by)
        ranks = pa.table({"valid": pc.is_valid(column), "order": column, "row": numbers})
        numbers = pc.sort_indices(ranks, sort_keys=[(name, "ascending") for name in ranks.column_names]).cast(
            pa.int64()
        )
        table = table.take(numbers)
    ranked = table.select(list(keys)).append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))
    last = ranked.group_by(list(keys)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max").combine_chunks()
    kept = numbers.take(last) if table.num_rows else numbers
    return pc.is_in(pa.array(range(table.num_rows), pa.int64()), value_set=kept)
