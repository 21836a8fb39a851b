"""Reads the few metrics that the console shows from `/metrics` of brokers: bytes in and out, connections.

The addresses come from the command line only. An address that does not answer is left out.
"""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from itertools import chain
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
    """Not thread-safe: each collector has its own."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._totals: dict[tuple[str, str], tuple[float, float]] = {}
        """By address and name: the total that was read last, and when."""

    def __call__(self) -> Mapping[str, Any]:
        samples: dict[str, list[Sample]] = {}
        errors = []
        for url in self._urls:
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                    text = response.read(TEXT_BYTES_MAX).decode(errors="replace")
            except (OSError, HTTPException) as error:
                errors.append(f"{url}: {error}")
                continue
            samples[url] = list(parse(text.splitlines(), SHOWN))
        now = time.monotonic()
        return {
            "bytes_in_per_second": self.rate(BYTES_IN, samples, now),
            "bytes_out_per_second": self.rate(BYTES_OUT, samples, now),
            "samples": list(chain.from_iterable(samples.values()))[:SAMPLES_MAX],
            "errors": errors,
        }

    def rate(self, name: str, samples: Mapping[str, Iterable[Sample]], now: float) -> float | None:
        """Return the rate of all addresses. One that is missing once counts again from its own last total on."""
        rates = []
        for url, its_samples in samples.items():
            values = [sample.value for sample in its_samples if sample.name == name and "topic" not in sample.labels]
            if not values:
                continue
            total = sum(values)
            before, then = self._totals.get((url, name), (None, now))
            self._totals[url, name] = total, now
            if before is not None and total >= before and now > then:
                rates.append((total - before) / (now - then))
        return sum(rates) if rates else None


def parse(lines: Iterable[str], names: Sequence[str]) -> Iterator[Sample]:
    """Yield the samples with these names of a text in Prometheus' format. JSON has no numbers that are not finite."""
    for line in lines:
        if not line.startswith(tuple(names)):
            continue
        found = _LINE.match(line)
        if found is None or found[1] not in names:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield Sample(found[1], dict(_LABEL.findall(found[2] or "")), value)
