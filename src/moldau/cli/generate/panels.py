"""The panels of the Grafana dashboard: titles, queries and units, in rows."""

from __future__ import annotations

from typing import Final, NamedTuple

NODES: Final = 'job="$job"'
TOPICS: Final = f'{NODES},topic=~"$topic"'
GROUPS: Final = f'{NODES},consumergroup=~"$group"'
PIPELINES: Final = 'pipeline=~"$pipeline"'
"""Runs of pipelines are no nodes: they have a scrape job of their own, and names that nothing else has."""
SOURCE_LEGEND: Final = "{{pipeline}} {{source}}"
QUERY_LEGEND: Final = "{{pipeline}} {{query}}"


class Query(NamedTuple):
    expression: str
    legend: str = ""


class Number(NamedTuple):
    """A panel with one number, red from `bad_from` on (or below `bad_below`)."""

    title: str
    expression: str
    unit: str = "none"
    bad_from: float | None = None
    bad_below: float | None = None


class Chart(NamedTuple):
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    description: str = ""


class Row(NamedTuple):
    title: str
    panels: tuple[Number | Chart, ...]


def _rate(metric: str, by: str, selection: str = NODES) -> str:
    return f"sum by ({by}) (rate({metric}{{{selection}}}[$__rate_interval]))"


def _of_topics(title: str, metric: str, unit: str) -> Chart:
    name = f"kafka_server_brokertopicmetrics_{metric}_total"
    return Chart(title, (Query(_rate(name, "topic", TOPICS + ',topic!=""'), "{{topic}}"),), unit)


def _rates(title: str, metric: str, by: str, unit: str, description: str = "") -> Chart:
    """A rate a second, a line for each value of the label `by`."""
    return Chart(title, (Query(_rate(metric, by), f"{{{{{by}}}}}"),), unit, description)


def _by_node(title: str, expression: str, unit: str = "short") -> Chart:
    """A line for each node; SELECTION in the expression stands for its labels."""
    return Chart(title, (Query(expression.replace("SELECTION", NODES), "{{instance}}"),), unit)


def _pipelines_with(state: str) -> str:
    return f'sum(moldau_pipeline_query_state{{{PIPELINES},state="{state}"}}) or vector(0)'


def _of_queries(title: str, metric: str, unit: str = "short", description: str = "") -> Chart:
    """A line for each query of a pipeline."""
    expression = f"max by (pipeline, query) (moldau_pipeline_{metric}{{{PIPELINES}}})"
    return Chart(title, (Query(expression, QUERY_LEGEND),), unit, description)


def _of_sources(title: str, metric: str, unit: str = "short", description: str = "") -> Chart:
    """A line for each source of a pipeline."""
    expression = f"max by (pipeline, source) (moldau_pipeline_source_{metric}{{{PIPELINES}}})"
    return Chart(title, (Query(expression, SOURCE_LEGEND),), unit, description)


ROWS: Final = (
    Row(
        "Overview",
        (
            Number("Nodes", f"sum(up{{{NODES}}})", bad_below=1),
            Number(
                "Active controllers",
                f"sum(kafka_controller_kafkacontroller_activecontrollercount{{{NODES}}})",
                bad_from=2,
                bad_below=1,
            ),
            Number(
                "Partitions without a leader",
                f"sum(kafka_controller_kafkacontroller_offlinepartitionscount{{{NODES}}})",
                bad_from=1,
            ),
            Number(
                "Under-replicated partitions",
                f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{NODES}}})",
                bad_from=1,
            ),
            Number(
                "Largest lag",
                f"max(moldau_consumergroup_lag_seconds{{{NODES}}}) or vector(0)",
                "s",
                bad_from=300,
            ),
            Number(
                "Least free disk",
                f"min(moldau_data_dir_free_bytes{{{NODES}}} / moldau_data_dir_size_bytes{{{NODES}}})",
                "percentunit",
                bad_below=0.1,
            ),
        ),
    ),
    Row(
        "Traffic",
        (
            _of_topics("Records in", "messagesin", "cps"),
            _of_topics("Bytes in", "bytesin", "Bps"),
            _of_topics("Bytes out", "bytesout", "Bps"),
            Chart(
                "Requests",
                (Query(_rate("kafka_network_requestmetrics_requests_total", "request"), "{{request}}"),),
                "reqps",
            ),
            Chart(
                "Time until the response",
                (
                    Query(
                        _rate("kafka_network_requestmetrics_totaltimems_sum", "request")
                        + " / "
                        + _rate("kafka_network_requestmetrics_totaltimems_count", "request"),
                        "{{request}}",
                    ),
                ),
                "ms",
                "The mean of one in 16 requests. Fetches wait for records, so their time is mostly waiting.",
            ),
            _rates("Limits reached", "moldau_limits_total", "limit", "cps", "docs/security.md lists the limits."),
        ),
    ),
    Row(
        "Consumer groups",
        (
            Chart(
                "Lag in seconds",
                (
                    Query(
                        f"max by (consumergroup, topic) (moldau_consumergroup_lag_seconds{{{GROUPS}}})",
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
                "s",
                "How old the first record is that the group has not read.",
            ),
            Chart(
                "Lag in records",
                (
                    Query(
                        f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{GROUPS}}})",
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
            ),
            Chart(
                "Members",
                (Query(f"sum by (consumergroup) (kafka_consumergroup_members{{{GROUPS}}})", "{{consumergroup}}"),),
            ),
        ),
    ),
    Row(
        "Cluster",
        (
            _by_node("Partitions led", "kafka_server_replicamanager_leadercount{SELECTION}"),
            Chart(
                "In-sync replicas: shrinks and expansions",
                (
                    Query(_rate("kafka_server_replicamanager_isrshrinks_total", "instance"), "shrinks {{instance}}"),
                    Query(_rate("kafka_server_replicamanager_isrexpands_total", "instance"), "expansions {{instance}}"),
                ),
                "cps",
            ),
            Chart(
                "Controller epoch",
                (Query(f"max(kafka_server_raftmetrics_current_epoch{{{NODES}}})", "epoch"),),
                description="Each step is an election of the controller.",
            ),
        ),
    ),
    Row(
        "Storage",
        (
            Chart(
                "Size of topics, all replicas",
                (Query(f"topk(20, sum by (topic) (kafka_log_log_size{{{TOPICS}}}))", "{{topic}}"),),
                "bytes",
            ),
            _by_node("Free disk", "moldau_data_dir_free_bytes{SELECTION}", "bytes"),
            _by_node("Logs that wait for the disk", "moldau_flush_queue{SELECTION}"),
        ),
    ),
    Row(
        "Nodes",
        (
            _rates("Processor", "process_cpu_seconds_total", "instance", "percentunit"),
            _by_node("Memory", "process_resident_memory_bytes{SELECTION}", "bytes"),
            _by_node(
                "Connections", "sum by (instance) (kafka_server_socket_server_metrics_connection_count{SELECTION})"
            ),
            _rates(
                "Time in which the node did not run",
                "moldau_node_paused_seconds_total",
                "instance",
                "percentunit",
                "It got no processor, or something held its event loop up.",
            ),
            _by_node("Open files", "process_open_fds{SELECTION}"),
            Chart(
                "Metrics pushed by clients",
                (Query(_rate("moldau_telemetry_pushes_total", "instance"), "{{instance}}"),),
                "cps",
            ),
        ),
    ),
    Row(
        "Pipelines",
        (
            Number("Pipelines that run", f"sum(moldau_pipeline_running{{{PIPELINES}}}) or vector(0)"),
            Number("Queries that run", _pipelines_with("running")),
            Number("Queries that failed", _pipelines_with("failed"), bad_from=1),
            Number("Restarts", f"sum(moldau_pipeline_restarts_total{{{PIPELINES}}}) or vector(0)", bad_from=1),
            Number("Bad records", f"sum(moldau_pipeline_bad_records_total{{{PIPELINES}}}) or vector(0)", bad_from=1),
            Number(
                "Largest lag of a query",
                f"max(moldau_pipeline_lag_seconds{{{PIPELINES}}}) or vector(0)",
                "s",
                bad_from=300,
            ),
            Chart(
                "Rows in and out",
                (
                    Query(_rate("moldau_pipeline_rows_in_total", "pipeline, query", PIPELINES), f"in {QUERY_LEGEND}"),
                    Query(_rate("moldau_pipeline_rows_out_total", "pipeline, query", PIPELINES), f"out {QUERY_LEGEND}"),
                ),
                "cps",
                "Rows out are those that were passed to the sinks.",
            ),
            Chart(
                "Rows by source and sink",
                (
                    Query(_rate("moldau_pipeline_source_rows_total", "pipeline, source", PIPELINES), "from {{source}}"),
                    Query(_rate("moldau_pipeline_sink_rows_total", "pipeline, sink", PIPELINES), "to {{sink}}"),
                ),
                "cps",
                "Two queries that read a source are counted both. Of a backend, the rows that it took.",
            ),
            Chart(
                "What backends do not take",
                (
                    Query(_rate("moldau_pipeline_sink_retries_total", "pipeline, sink", PIPELINES), "retries {{sink}}"),
                    Query(
                        _rate("moldau_pipeline_sink_dead_letters_total", "pipeline, sink", PIPELINES),
                        "dead letters {{sink}}",
                    ),
                    Query(
                        f"max by (pipeline, query) (moldau_pipeline_query_waiting{{{PIPELINES}}})", "{{query}} waits"
                    ),
                ),
                "short",
                "Retries and dead letters a second; 1 while the backend of a query takes nothing.",
            ),
            _of_sources("Lag of sources in seconds", "lag_seconds", "s"),
            _of_sources("Lag of sources in records", "lag_records"),
            _of_sources(
                "Lag of databases", "lag_bytes", "bytes", "Of the log, between the position of the slot and its end."
            ),
            Chart(
                "Since the last change of a database",
                (
                    Query(
                        "time() - max by (pipeline, source)"
                        f" (moldau_pipeline_source_last_change_timestamp_seconds{{{PIPELINES}}})",
                        SOURCE_LEGEND,
                    ),
                ),
                "s",
                "The commit of the last change that was read. It grows while nothing changes.",
            ),
            _of_queries("Lag of queries in seconds", "lag_seconds", "s"),
            _of_queries("Lag of queries in records", "lag_records"),
            _of_queries("Time of the last batch", "last_batch_seconds", "s"),
            Chart(
                "Where the time of batches goes",
                (Query(_rate("moldau_pipeline_batch_phase_seconds_total", "phase", PIPELINES), "{{phase}}"),),
                "percentunit",
                "By Spark's phases: addBatch is the work itself.",
            ),
            Chart(
                "Behind the clock: the watermark",
                (
                    Query(
                        "time() - max by (pipeline, query)"
                        f" (moldau_pipeline_watermark_timestamp_seconds{{{PIPELINES}}})",
                        QUERY_LEGEND,
                    ),
                ),
                "s",
            ),
            _of_queries("Rows in the state", "state_rows", description="Of windows, joins and deduplication."),
            _of_queries("Memory of the state", "state_bytes", "bytes"),
            Chart(
                "Late rows and bad records",
                (
                    Query(
                        _rate("moldau_pipeline_rows_late_total", "pipeline, query", PIPELINES), f"late {QUERY_LEGEND}"
                    ),
                    Query(
                        _rate("moldau_pipeline_bad_records_total", "pipeline, query, source", PIPELINES),
                        "bad {{pipeline}} {{source}}",
                    ),
                ),
                "cps",
                "Late rows are behind the watermark; bad records could not be parsed.",
            ),
        ),
    ),
)
