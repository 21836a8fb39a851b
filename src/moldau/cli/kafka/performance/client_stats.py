"""librdkafka's statistics, printed as --print-metrics prints Java's metrics: a name and a value per line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

INTERVAL_MS: Final = 500
WAIT_SECONDS: Final = 2.0


class ClientStats:
    """Pass `config` to a client, and its `poll` to `print_table` at the end of the run."""

    def __init__(self) -> None:
        self._last = ""

    @property
    def config(self) -> dict[str, Any]:
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._on_statistics}

    def _on_statistics(self, text: str) -> None:
        self._last = text

    def print_table(self, poll: Callable[[float], object]) -> None:
        """Wait for the statistics of the whole run, which come at the next interval, and print them."""
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
