"""librdkafka's statistics, kept as they come and printed as --print-metrics prints Java's metrics: a name, a value."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

INTERVAL_MS: Final = 500
WAIT_SECONDS: Final = 2.0


class ClientStats:
    """Give `config` to a client, and `poll` to `print_table` when the run is over."""

    def __init__(self) -> None:
        self._last = ""

    @property
    def config(self) -> dict[str, Any]:
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._keep}

    def _keep(self, text: str) -> None:
        self._last = text

    def print_table(self, poll: Callable[[float], object]) -> None:
        """Waits for the statistics of the whole run, which come at the next interval."""
        self._last = ""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._last and time.monotonic() < deadline:
            poll(0.1)
        rows = list(_flat(json.loads(self._last or "{}"), ""))
        width = max((len(name) for name, _ in rows), default=12)
        print(f"\n{'Metric Name':<{width}}   Value")
        for name, value in sorted(rows):
            print(f"{name:<{width}} : {value}")


def _flat(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}:")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value
