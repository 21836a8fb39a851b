"""Which sinks make which streaming query: one each, but for those that share one (`with` in the file).

A query of several sinks is named after all of them, "by-type+lake": the same sinks go on from its checkpoint, others
do not. A batch needs no checkpoint, and there each sink is on its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.pipelines.spec import Sink

BETWEEN_SINKS: Final = "+"
"""No name of a sink may hold it."""
QUERY_NAME_LENGTH_MAX: Final = 200
"""Checkpoints and consumer groups are named after queries; names of files have 255 bytes."""
DEAD_LETTERS: Final = ".dead-letters"
"""How the query of the bad records of a source is named: "<source>.dead-letters"."""
PARSED: Final = ".parsed"
"""How the counters of a source end, in the progress of a query under observedMetrics: records, and bad ones."""


def sinks_by_query(sinks: Iterable[Sink], apart: bool = False) -> dict[str, tuple[Sink, ...]]:
    """The sinks of each query in the order of the pipeline, by the name of the query, which does not depend on it."""
    together: dict[str, list[Sink]] = {}
    for sink in sinks:
        first = sink.name if apart or sink.shares is None else sink.shares
        together.setdefault(first, []).append(sink)
    return {BETWEEN_SINKS.join(sorted(sink.name for sink in group)): tuple(group) for group in together.values()}


def sinks_of(query: str) -> tuple[str, ...]:
    """The names of the sinks of a query; those of dead letters are named after their source."""
    return tuple(query.split(BETWEEN_SINKS))
