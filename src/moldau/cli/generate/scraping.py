"""A configuration of Prometheus that scrapes the nodes of a cluster, and runs of pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence


def configuration_text(
    targets: Sequence[str], pipelines: Sequence[str], job: str, interval: str, rules: Sequence[str]
) -> str:
    lines = [
        "# Start with: prometheus --config.file=THIS-FILE",
        "global:",
        f"  scrape_interval: {interval}",
        f"  evaluation_interval: {interval}",
        "scrape_configs:",
        *_scrape_job(job, targets),
    ]
    if pipelines:  # not in the job of the nodes: a run that has ended is no node that is down
        lines += _scrape_job(f"{job}-pipelines", pipelines)
    if rules:
        lines.append(f"rule_files: {json.dumps(list(rules))}")
    return "\n".join(lines) + "\n"


def _scrape_job(name: str, targets: Sequence[str]) -> Iterator[str]:
    yield f"  - job_name: {json.dumps(name)}"
    yield "    static_configs:"
    yield f"      - targets: {json.dumps(list(targets))}"
