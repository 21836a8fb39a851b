"""A configuration of Prometheus that scrapes the nodes of a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence


def configuration_text(targets: Sequence[str], job: str, interval: str, rules: Sequence[str]) -> str:
    lines = [
        "# Start with: prometheus --config.file=THIS-FILE",
        "global:",
        f"  scrape_interval: {interval}",
        f"  evaluation_interval: {interval}",
        "scrape_configs:",
        f"  - job_name: {json.dumps(job)}",
        "    static_configs:",
        f"      - targets: {json.dumps(list(targets))}",
    ]
    if rules:
        lines.append(f"rule_files: {json.dumps(list(rules))}")
    return "\n".join(lines) + "\n"
