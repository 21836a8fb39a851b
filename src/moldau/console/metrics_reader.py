"""Reads the few metrics that the console shows from `/metrics` of brokers: bytes in and out, connections.

The addresses come from the command line only. An address that does not answer is left out.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

TIMEOUT_SECONDS: Final = 2.0
TEXT_BYTES_MAX: Final = 32 << 20
SAMPLES_MAX: Final = 200
BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
CONNECTIONS: Final = "kafka_server_socket_server_metrics_connection_count"
SHOWN: Final = (BYTES_IN, BYTES_OUT, CONNECTIONS)
_LINE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class MetricsReader:
    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._totals: dict[str, tuple[float, float]] = {}

    def __call__(self) -> Mapping[str, Any]:
        samples: list[Sample] = []
        errors = []
        for url in self._urls:
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                    text = response.read(TEXT_BYTES_MAX).decode(errors="replace")
            except OSError as error:
                errors.append(f"{url}: {error}")
                continue
            samples += parse(text.splitlines(), SHOWN)
        now = time.monotonic()
        return {
            "bytes_in_per_second": self._rate(BYTES_IN, samples, now),
            "bytes_out_per_second": self._rate(BYTES_OUT, samples, now),
            "samples": samples[:SAMPLES_MAX],
            "errors": errors,
        }

    def _rate(self, name: str, samples: Iterable[Sample], now: float) -> float | None:
        values = [sample.value for sample in samples if sample.name == name and "topic" not in sample.labels]
        if not values:
            return None
        total = sum(values)
        before = self._totals.get(name)
        self._totals[name] = total, now
        if before is None or total < before[0] or now <= before[1]:
            return None
        return (total - before[0]) / (now - before[1])


def parse(lines: Iterable[str], names: Sequence[str]) -> Iterator[Sample]:
    """Yield the samples with these names of a text in Prometheus' format."""
    for line in lines:
        if not line.startswith(tuple(names)):
            continue
        found = _LINE.match(line)
        if found is None or found[1] not in names:
            continue
        try:
            yield Sample(found[1], dict(_LABEL.findall(found[2] or "")), float(found[3]))
        except ValueError:
            continue
