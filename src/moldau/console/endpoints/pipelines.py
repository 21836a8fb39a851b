"""Pipelines: what their runs write to their state directories. Without directories the page says how to name one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.base.errors import StorageFault
from moldau.base.listeners import host_and_port
from moldau.console.call import Call, Endpoint
from moldau.console.collector.state import ClusterState

if TYPE_CHECKING:
    from moldau.pipelines.running.progress import RunStatus

PIPELINES_MAX: Final = 100
HOW_TO: Final = "`moldau console --pipelines DIR` shows the runs of the pipeline files in a directory."


def list_pipelines(call: Call) -> dict[str, Any]:
    directories = call.options.pipelines
    here = _Here(call.options.bootstrap, call.access.collector.look())
    rows = list(islice((row for directory in directories for row in _rows(Path(directory), here)), PIPELINES_MAX))
    empty = None
    if not rows:
        empty = (
            f"No pipeline has run in {', '.join(directories)} yet."
            if directories
            else f"No directory is named. {HOW_TO}"
        )
    return {"rows": rows, "directories": list(directories), "empty": empty}


class _Here(NamedTuple):
    """The cluster of this console."""

    bootstrap: str
    state: ClusterState

    def is_cluster_of(self, run: RunStatus) -> bool:
        """Whether a run may be one of this cluster. A status of an earlier version has addresses, but no cluster id."""
        from moldau.pipelines.running.renamed_pipeline import may_be_same_cluster

        if run.cluster_id and self.state.cluster_id:
            return run.cluster_id == self.state.cluster_id
        if "brokers" not in self.state.read:
            return True
        addresses = (host_and_port(node.host, node.port) for node in self.state.nodes.values())
        return may_be_same_cluster(run.bootstrap, ",".join([self.bootstrap, *addresses]))


def _rows(folder: Path, here: _Here) -> Iterator[dict[str, Any]]:
    """Return the runs of all files in a folder and in the folders inside it (one level), as `moldau pipeline list`."""
    from moldau.pipelines.problems import PipelineError
    from moldau.pipelines.running.state_directory import STATUS, StateDirectory, known_directories

    folders = [folder, *sorted(path for path in folder.glob("*") if path.is_dir() and not path.name.startswith("."))]
    for each in folders:
        itself = [StateDirectory(each)] if (each / STATUS).is_file() else []  # of a run with --state
        for directory in [*itself, *known_directories(each)]:
            try:
                content = directory.read_status()
                is_alive = directory.holder() is not None
            except (OSError, StorageFault, PipelineError, ValueError) as error:
                yield _broken(directory.path.name, str(error))
                continue
            if content is not None:
                yield _row(directory.path.name, content, is_alive, here)


_NOTHING: Final[dict[str, Any]] = {"queries": [], "sources": [], "sinks": [], "graph": None, "dead_letters": []}


def _broken(name: str, error: str) -> dict[str, Any]:
    return {"name": name, "state": "unknown", "error": error, **_NOTHING}


def _row(name: str, content: dict[str, Any], is_alive: bool, here: _Here) -> dict[str, Any]:
    from moldau.pipelines.running.progress import RunStatus

    try:
        run = RunStatus.from_json(content)
    except ValueError as error:
        return _broken(name, str(error))
    is_dead = not is_alive and not run.is_over
    lags = [query.lag_records for query in run.queries if query.lag_records is not None]
    batches = [query for query in run.queries if query.batch_id is not None]
    is_here = here.is_cluster_of(run)
    rates = {query.name: query.rows_in_per_second for query in run.queries}
    graph, dead_letters = _graph(run.file, rates, here.state if is_here else None)
    return {
        "name": run.pipeline,
        "state": "failed" if is_dead else run.state,
        "since_ms": _time_ms(run.started),
        "updated_ms": _time_ms(run.updated),
        "other_cluster": None if is_here else run.bootstrap or run.cluster_id,
        "file": run.file,
        "rows_per_second": sum(query.rows_in_per_second for query in run.queries),
        "batch": max((query.batch_id or 0 for query in batches), default=None),
        "batch_seconds": max(((query.batch_ms or 0) / 1000 for query in batches), default=None),
        "watermark_ms": min(
            (time for query in run.queries if (time := _time_ms(query.watermark)) is not None), default=None
        ),
        "lag": max(lags, default=None),
        "queries": [
            {
                "name": query.name,
                "state": "stopped" if is_dead else query.state,
                "rows_per_second": query.rows_in_per_second,
                "rows_out_per_second": query.rows_out_per_second,
                "rows_in": query.rows_in,
                "rows_out": query.rows_out,
                "batch": query.batch_id,
                "batch_seconds": None if query.batch_ms is None else query.batch_ms / 1000,
                "lag": query.lag_records,
                "lag_seconds": query.lag_seconds,
                "watermark_ms": _time_ms(query.watermark),
                "state_rows": query.state_rows,
                "restarts": query.restarts,
                "bad_records": sum(counted.bad for counted in query.bad_records.values()),
                "rates": list(query.rates),
                "error": query.last_error,
                "waiting": query.waiting,
            }
            for query in run.queries
        ],
        "sources": _sources(run),
        "sinks": _sinks(run),
        "graph": graph,
        "dead_letters": dead_letters,
        "error": f"process {run.pid} on {run.host} was killed or crashed" if is_dead else run.message,
        "note": run.note,
    }


def _sources(run: RunStatus) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "query": query.name,
            "rows_per_second": source.rows_per_second,
            "rows": source.rows,
            "bad_records": query.bad_records[name].bad if name in query.bad_records else None,
            "lag": source.lag_records,
            "lag_seconds": source.lag_seconds,
            "lag_bytes": source.lag_bytes,
            "last_change_ms": source.last_change_ms,
        }
        for query in run.queries
        for name, source in query.sources.items()
    ]


def _sinks(run: RunStatus) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "query": query.name,
            "rows_per_second": sink.rows_per_second,
            "rows": sink.rows,
            "retries": sink.retries,
            "dead_letters": sink.dead_letters,
            "error": sink.last_error or query.last_error,
        }
        for query in run.queries
        for name, sink in query.sinks.items()
    ]


def _graph(
    file: str | None, rates: dict[str, float], state: ClusterState | None
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the graph of the file as it is now, and its topics of dead letters; (None, []) if it cannot be read.
    `state` is None if the topics are those of another cluster."""
    from moldau.pipelines.drawing.graph import NodeKind, graph
    from moldau.pipelines.problems import InvalidPipeline

    if file is None or not Path(file).is_file():
        return None, []
    try:
        from moldau.pipelines.reading.loading import load

        drawn = graph(load(Path(file), {}, connects=False))
    except (ImportError, InvalidPipeline, OSError):  # ImportError: YAML is in the extra `spark`
        return None, []
    nodes = [
        {"id": node.id, "kind": node.kind.value, "label": node.title, "lines": list(node.lines)} for node in drawn.nodes
    ]
    # The id of a node is `<kind>.<name>`. A query of one sink has the name of the sink.
    edges = [
        {"from": edge.source, "to": edge.target, "rows_per_second": rates.get(edge.target.partition(".")[2])}
        for edge in drawn.edges
    ]
    topics = [node.title for node in drawn.nodes if node.kind is NodeKind.DEAD_LETTERS]
    return {"nodes": nodes, "edges": edges}, [_dead_letters(topic, state) for topic in topics]


def _dead_letters(topic: str, state: ClusterState | None) -> dict[str, Any]:
    """Count offsets: those of transaction markers and of aborted records are among them. The exact number costs reading
    all records; the page shows it before they are sent again."""
    known = None if state is None else state.topics.get(topic)
    return {"topic": topic, "records_at_most": None if known is None else known.records}


def _time_ms(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


ENDPOINTS: Final = (Endpoint("GET", "/api/pipelines", list_pipelines),)
