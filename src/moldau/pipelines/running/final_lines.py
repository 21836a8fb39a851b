"""What the user should know at the end of a run, besides its bad records: late rows, and dead letters of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.pipelines.queries import DEAD_LETTERS
from moldau.pipelines.running.display import BATCH
from moldau.pipelines.running.progress import QueryStatus


def final_lines(queries: Sequence[QueryStatus], mode: str) -> list[str]:
    return [*_late(queries), *(_dead_letters(queries) if mode == BATCH else ())]


def _late(queries: Sequence[QueryStatus]) -> list[str]:
    """Return a line about late rows. Each task of Spark counts rows of the same window and key as one: "at least"."""
    late = [f"{query.name} at least {query.rows_late:,}" for query in queries if query.rows_late]
    return [f"rows that came later than the watermark allows were left out: {', '.join(late)}"] if late else []


def _dead_letters(queries: Sequence[QueryStatus]) -> list[str]:
    """Return a line per source with bad records. Of a batch, Spark reports only what was written."""
    written = {query.name: query.rows_out for query in queries if query.name.endswith(DEAD_LETTERS)}
    return [
        f"source {name.removesuffix(DEAD_LETTERS)}: {rows:,} records are bad; they are the rows of {name}"
        for name, rows in written.items()
        if rows
    ]
