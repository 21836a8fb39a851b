"""The metrics of a run as Prometheus reads them: what `status` shows, as numbers that can be drawn over time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeVar, get_args

from moldau.pipelines.running.ends import SinkStatus, SourceStatus
from moldau.pipelines.running.progress import QueryState, QueryStatus, RunStatus
from moldau.prometheus.text import COUNTER, GAUGE, Family, labels, pieces

_PREFIX: Final = "moldau_pipeline"
STATES: Final[tuple[str, ...]] = get_args(QueryState)
T = TypeVar("T")
Value = Callable[[QueryStatus], float | int | None]

_BY_QUERY: Final[tuple[tuple[Family, Value], ...]] = (
    (Family(f"{_PREFIX}_rows_in_total", COUNTER, "Rows read."), lambda query: query.rows_in),
    (
        Family(f"{_PREFIX}_rows_out_total", COUNTER, "Rows passed to the sinks."),
        lambda query: query.rows_out,
    ),
    (
        Family(f"{_PREFIX}_rows_late_total", COUNTER, "Rows behind the watermark that were left out."),
        lambda query: query.rows_late,
    ),
    (Family(f"{_PREFIX}_batches_total", COUNTER, "Micro-batches."), lambda query: query.batches),
    (
        Family(f"{_PREFIX}_last_batch_seconds", GAUGE, "Duration of the last micro-batch."),
        lambda query: None if query.batch_ms is None else query.batch_ms / 1000,
    ),
    (
        Family(f"{_PREFIX}_restarts_total", COUNTER, "Restarts of the query after a failure."),
        lambda query: query.restarts,
    ),
    (
        Family(f"{_PREFIX}_lag_records", GAUGE, "Records between the position of the query and the log ends."),
        lambda query: query.lag_records,
    ),
    (
        Family(f"{_PREFIX}_lag_seconds", GAUGE, "Age of the first record that is not processed."),
        lambda query: query.lag_seconds,
    ),
    (Family(f"{_PREFIX}_state_rows", GAUGE, "Rows in the state of the query."), lambda query: query.state_rows),
    (
        Family(f"{_PREFIX}_state_bytes", GAUGE, "Memory of the state of the query."),
        lambda query: query.state_bytes,
    ),
    (
        Family(f"{_PREFIX}_watermark_timestamp_seconds", GAUGE, "The watermark, in seconds since 1970."),
        lambda query: _timestamp(query.watermark),
    ),
)
_STATE: Final = Family(f"{_PREFIX}_query_state", GAUGE, "1 for the state in which the query is.")
_PHASES: Final = Family(f"{_PREFIX}_batch_phase_seconds_total", COUNTER, "Time of all micro-batches, by phase.")
_PARSED: Final = Family(f"{_PREFIX}_parsed_records_total", COUNTER, "Records parsed, by source.")
_BAD: Final = Family(f"{_PREFIX}_bad_records_total", COUNTER, "Records that could not be parsed, by source.")
_BY_SOURCE: Final[tuple[tuple[Family, Callable[[SourceStatus], float | None]], ...]] = (
    (Family(f"{_PREFIX}_source_rows_total", COUNTER, "Rows read, by source."), lambda source: source.rows),
    (
        Family(f"{_PREFIX}_source_lag_records", GAUGE, "Records between the position and the log ends, by source."),
        lambda source: source.lag_records,
    ),
    (
        Family(f"{_PREFIX}_source_lag_seconds", GAUGE, "Age of the first record that is not processed, by source."),
        lambda source: source.lag_seconds,
    ),
    (
        Family(f"{_PREFIX}_source_lag_bytes", GAUGE, "Log of a database between the position of the slot and its end."),
        lambda source: source.lag_bytes,
    ),
    (
        Family(
            f"{_PREFIX}_source_last_change_timestamp_seconds",
            GAUGE,
            "Commit of the last change of a database that was read, in seconds since 1970.",
        ),
        lambda source: None if source.last_change_ms is None else source.last_change_ms / 1000,
    ),
)
_BY_SINK: Final[tuple[tuple[Family, Callable[[SinkStatus], float | None]], ...]] = (
    (Family(f"{_PREFIX}_sink_rows_total", COUNTER, "Rows written, or taken by the backend."), lambda sink: sink.rows),
    (
        Family(
            f"{_PREFIX}_sink_retries_total", COUNTER, "How often a row was not taken by the backend and tried again."
        ),
        lambda sink: sink.retries,
    ),
    (
        Family(f"{_PREFIX}_sink_dead_letters_total", COUNTER, "Rows that the backend did not take."),
        lambda sink: sink.dead_letters,
    ),
)
_WAITING: Final = Family(f"{_PREFIX}_query_waiting", GAUGE, "1 while a backend takes nothing.")
_UP: Final = Family(f"{_PREFIX}_running", GAUGE, "1 while the run goes on.")


def collect(status: RunStatus) -> Iterator[str]:
    """Yield the text in pieces. A value that is not known has no series."""
    yield from pieces(_UP, [(labels(pipeline=status.pipeline, mode=status.mode), int(not status.is_over))])
    queries = [(query, {"pipeline": status.pipeline, "query": query.name}) for query in status.queries]
    yield from pieces(
        _STATE,
        (
            (labels(**of_query, state=state), int(state == query.state))
            for query, of_query in queries
            for state in STATES
        ),
    )
    for family, value_of in _BY_QUERY:
        known = ((labels(**of_query), value_of(query)) for query, of_query in queries)
        yield from pieces(family, ((labelled, value) for labelled, value in known if value is not None))
    yield from pieces(
        _PHASES,
        (
            (labels(**of_query, phase=phase), ms / 1000)
            for query, of_query in queries
            for phase, ms in query.phases_ms.items()
        ),
    )
    yield from pieces(_WAITING, ((labels(**of_query), int(query.waiting is not None)) for query, of_query in queries))
    sources = [
        (labels(**of_query, source=name), source)
        for query, of_query in queries
        for name, source in query.sources.items()
    ]
    sinks = [(labels(**of_query, sink=name), sink) for query, of_query in queries for name, sink in query.sinks.items()]
    yield from _known(_BY_SOURCE, sources)
    yield from _known(_BY_SINK, sinks)
    yield from _parsed(_PARSED, queries, lambda records, _: records)
    yield from _parsed(_BAD, queries, lambda _, bad: bad)


def _known(
    families: Iterable[tuple[Family, Callable[[T], float | None]]], ends: Sequence[tuple[str, T]]
) -> Iterator[str]:
    for family, value_of in families:
        known = ((labelled, value_of(end)) for labelled, end in ends)
        yield from pieces(family, ((labelled, value) for labelled, value in known if value is not None))


def _parsed(
    family: Family, queries: Iterable[tuple[QueryStatus, dict[str, str]]], count: Callable[[int, int], int]
) -> Iterator[str]:
    return pieces(
        family,
        (
            (labels(**of_query, source=source), count(*counted))
            for query, of_query in queries
            for source, counted in sorted(query.bad_records.items())
        ),
    )


def _timestamp(watermark: str | None) -> float | None:
    """Return Spark's text of a watermark as a number. Before the first event it is 1970. A year that Python's datetime
    lacks, such as +11476, is not known."""
    if watermark is None:
        return None
    try:
        seconds = datetime.fromisoformat(watermark).timestamp()
    except ValueError:
        return None
    return seconds or None
