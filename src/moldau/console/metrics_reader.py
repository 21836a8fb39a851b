"""Reads the few metrics that the console shows from `/metrics` of brokers and gateways: bytes in and out, connections,
what clients pushed to brokers, and what gateways measure.

The addresses come from the command line only. One that does not answer is left out, and named in the errors.
"""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final

from moldau.console.gateways import COUNTERS, gateway_row
from moldau.console.gateways import PREFIX as PREFIX_OF_GATEWAYS
from moldau.console.metrics_text import Sample, lines_of, parse
from moldau.console.telemetry import LastPushes, Telemetry, telemetry_of
from moldau.metrics.clients import PREFIX

TIMEOUT_SECONDS: Final = 2.0
TEXT_BYTES_MAX: Final = 32 << 20
SAMPLES_MAX: Final = 200
"""Of each address."""
BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
CONNECTIONS: Final = "kafka_server_socket_server_metrics_connection_count"
SHARE_RECORDS: Final = "moldau_share_records"
SHOWN: Final = (BYTES_IN, BYTES_OUT, CONNECTIONS)


class MetricsReader:
    """Not thread-safe: each collector has its own."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._totals: dict[tuple[str, str], tuple[float, float]] = {}
        """By address and name: the total that was read last, and when."""
        self._last_pushes = LastPushes()

    def __call__(self) -> Mapping[str, Any]:
        samples: dict[str, list[Sample]] = {}
        gateways: dict[str, list[Sample]] = {}
        share_records: Counter[tuple[str, str, str]] = Counter()
        telemetries: dict[str, Telemetry] = {}
        times: dict[str, float] = {}
        errors = []
        for url in self._urls:
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                    text = response.read(TEXT_BYTES_MAX).decode(errors="replace")
            except (OSError, HTTPException, ValueError) as error:
                errors.append(f"{url}: {error}")
                continue
            times[url] = time.monotonic()
            lines = lines_of(text)
            samples[url] = [each for each in parse(lines, SHOWN) if "topic" not in each.labels]
            gateways[url] = list(parse(lines, (), PREFIX_OF_GATEWAYS))
            share_records.update(share_records_of(parse(lines, (SHARE_RECORDS,))))
            telemetries[url] = telemetry_of(parse(lines, (), PREFIX), len(self._urls))
        return {
            "bytes_in_per_second": self.rate(BYTES_IN, samples, times),
            "bytes_out_per_second": self.rate(BYTES_OUT, samples, times),
            "samples": [
                sample._replace(labels={"address": url, **sample.labels})
                for url, its_samples in samples.items()
                for sample in its_samples[:SAMPLES_MAX]
            ],
            "gateways": self._gateways(gateways, times),
            "share_records": share_records,
            "telemetry": self._last_pushes.merged(telemetries),
            "errors": errors,
        }

    def _gateways(self, samples: Mapping[str, Iterable[Sample]], times: Mapping[str, float]) -> list[dict[str, Any]]:
        rows = []
        for url, its_samples in samples.items():
            rates = {name: self.rate(name, {url: its_samples}, times) for name in COUNTERS}
            rows.append(gateway_row(url, its_samples, rates))
        return [row for row in rows if row is not None]

    def rate(self, name: str, samples: Mapping[str, Iterable[Sample]], times: Mapping[str, float]) -> float | None:
        """Return the rate of all addresses, each by the time at which it was read. One that is missing once counts
        again from its own last total on."""
        rates = []
        for url, its_samples in samples.items():
            values = [sample.value for sample in its_samples if sample.name == name]
            if not values:
                continue
            total, now = sum(values), times[url]
            before, then = self._totals.get((url, name), (None, now))
            self._totals[url, name] = total, now
            if before is not None and total >= before and now > then:
                rates.append((total - before) / (now - then))
        return sum(rates) if rates else None


def share_records_of(samples: Iterable[Sample]) -> dict[tuple[str, str, str], int]:
    """Return how many records share groups have begun and not finished, by group, topic and state."""
    return {
        (each.labels.get("group", ""), each.labels.get("topic", ""), each.labels.get("state", "")): int(each.value)
        for each in samples
    }
