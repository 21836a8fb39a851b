"""The Grafana dashboard of a cluster as the JSON that Grafana imports.

The layout follows from the order of `panels.ROWS`: three charts or six numbers to a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from moldau.cli.generate.panels import NODES, ROWS, Chart, Number, Query

SCHEMA_VERSION: Final = 39
"""Of dashboards, Grafana 10 and later; newer ones migrate it when they load it."""
GRID_WIDTH: Final = 24
CHART_WIDTH: Final = 8
CHART_HEIGHT: Final = 7
NUMBER_WIDTH: Final = 4
NUMBER_HEIGHT: Final = 4
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(title: str, job: str) -> dict[str, Any]:
    """Return the dashboard as Grafana imports it. `job` is the name of the scrape job that is chosen first."""
    return {
        "title": title,
        "uid": "moldau",
        "tags": ["moldau", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(job))},
        "panels": list(_panels()),
    }


def _variables(job: str) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    jobs = "label_values(moldau_build_info, job)"
    yield _variable("job", "Job", jobs) | {"current": {"text": job, "value": job}}
    everything = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    yield _variable("topic", "Topic", f"label_values(kafka_topic_partitions{{{NODES}}}, topic)") | everything
    groups = f"label_values(kafka_consumergroup_members{{{NODES}}}, consumergroup)"
    yield _variable("group", "Group", groups) | everything
    yield _variable("pipeline", "Pipeline", "label_values(moldau_pipeline_running, pipeline)") | everything


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def _panels() -> Iterator[dict[str, Any]]:
    panel_id, top = 0, 0
    for row in ROWS:
        panel_id += 1
        place = {"x": 0, "y": top, "w": GRID_WIDTH, "h": 1}
        yield {"id": panel_id, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        left = line_height = 0
        for panel in row.panels:
            is_number = isinstance(panel, Number)
            width, height = (NUMBER_WIDTH, NUMBER_HEIGHT) if is_number else (CHART_WIDTH, CHART_HEIGHT)
            if left + width > GRID_WIDTH:
                left, top, line_height = 0, top + line_height, 0
            panel_id += 1
            drawn = _number(panel) if isinstance(panel, Number) else _chart(panel)
            yield drawn | {"id": panel_id, "gridPos": {"x": left, "y": top, "w": width, "h": height}}
            left, line_height = left + width, max(line_height, height)
        top += line_height


def _number(panel: Number) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.bad_below}]
    if panel.bad_from is not None:
        steps.append({"color": "red", "value": panel.bad_from})
    return {
        "type": "stat",
        "title": panel.title,
        "datasource": DATASOURCE,
        "targets": _targets([Query(panel.expression)]),
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"},
    }


def _chart(panel: Chart) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": _targets(panel.queries),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]}},
    }


def _targets(queries: Sequence[Query]) -> list[dict[str, Any]]:
    return [
        {
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": query.expression,
            "legendFormat": query.legend,
        }
        for index, query in enumerate(queries)
    ]
