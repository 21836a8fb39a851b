"""Which sinks belong to which streaming query: each sink has its own, unless it shares one (`with` in the file).

A query of several sinks is named after all of them, "by-type+lake": only a query of the same sinks continues from its
checkpoint. A batch needs no checkpoint, so there every sink is separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moldau.pipelines.spec import Sink

BETWEEN_SINKS: Final = "+"
"""A sink's name cannot contain it."""
QUERY_NAME_LENGTH_MAX: Final = 200
"""Checkpoints and consumer groups are named after queries, and a file name has at most 255 bytes."""
DEAD_LETTERS: Final = ".dead-letters"
"""Suffix of the query that writes a source's bad records: "<source>.dead-letters"."""
PARSED: Final = ".parsed"
"""Suffix of a source's counters (records, bad records) under observedMetrics in the progress of a query."""
READ: Final = ".read"
"""The same for the rows of a database or a class, and for the time of the last change of a database."""
WRITTEN: Final = "moldau.written"
"""The name there of the rows of a micro-batch that Spark passes to Moldau as a whole, and does not count."""


def sinks_by_query(sinks: Iterable[Sink], each_sink_alone: bool = False) -> dict[str, tuple[Sink, ...]]:
    """Return the sinks of each query in the order of the file, by query name. The name does not depend on that order.

    With `each_sink_alone` no sinks share a query."""
    groups: dict[str, list[Sink]] = {}
    for sink in sinks:
        first = sink.name if each_sink_alone or sink.shares_query_of is None else sink.shares_query_of
        groups.setdefault(first, []).append(sink)
    return {BETWEEN_SINKS.join(sorted(sink.name for sink in group)): tuple(group) for group in groups.values()}


def could_share(sinks: Iterable[Sink]) -> Iterator[tuple[Sink, Sink]]:
    """Yield the pairs of a sink that starts a query and a sink with a query of its own that could share that."""
    first_of: dict[tuple[str, str | None], Sink] = {}
    for query in sinks_by_query(sinks).values():
        if query[0].mode != "append":
            continue
        first = first_of.setdefault((query[0].view.lower(), query[0].trigger), query[0])
        if first is not query[0] and len(query) == 1:
            yield first, query[0]


def sinks_of(query: str) -> tuple[str, ...]:
    """Return the names of a query's sinks. For a query of dead letters that is the name of the query itself."""
    return tuple(query.split(BETWEEN_SINKS))
