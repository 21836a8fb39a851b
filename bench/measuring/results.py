"""What was measured, as values: samples per system, their middle and spread, and ratios between systems.

Every ratio says how many times better the first system is, whatever the quantity: above 1.0 it is ahead. Rounds are
compared in pairs, because what disturbs a shared machine mostly disturbs both halves of a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Quantity:
    """What one number of a workload is."""

    name: str
    unit: str
    higher_is_better: bool = True
    work_unit: str = "request"
    """What the broker's CPU time is divided by."""


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float


@dataclass
class Samples:
    """One system's numbers, one for each counted round."""

    values: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    """Microseconds of the broker's CPU time for one unit of work; empty where it was not taken."""


@dataclass
class Result:
    quantity: Quantity
    samples: dict[str, Samples]

    def value(self, system: str) -> Spread:
        return spread(self.samples[system].values)

    def cpu_us(self, system: str) -> Spread | None:
        taken = self.samples[system].cpu_us
        return spread(taken) if taken else None

    def ratio(self, system: str, baseline: str) -> Spread | None:
        """How many times better the system is than the baseline."""
        ours, theirs = self.samples[system].values, self.samples[baseline].values
        return _ratio(ours, theirs) if self.quantity.higher_is_better else _ratio(theirs, ours)

    def cpu_ratio(self, system: str, baseline: str) -> Spread | None:
        """How many times less CPU time the system's broker takes than the baseline's for the same work."""
        return _ratio(self.samples[baseline].cpu_us, self.samples[system].cpu_us)


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def _ratio(upper: Sequence[float], lower: Sequence[float]) -> Spread | None:
    if not upper or not lower:
        return None
    if len(upper) != len(lower):  # not taken in rounds: only the middles can be compared
        upper, lower = [statistics.median(upper)], [statistics.median(lower)]
    if not all(lower):  # less than one clock tick of CPU time: there is nothing to divide by
        return None
    return spread([above / below for above, below in zip(upper, lower, strict=True)])


def as_json(results: Sequence[Result], baseline: str) -> list[dict[str, Any]]:
    return [_one_as_json(result, baseline) for result in results]


def _one_as_json(result: Result, baseline: str) -> dict[str, Any]:
    quantity = result.quantity
    systems = {
        name: {
            "spread": _spread_as_json(result.value(name)),
            "rounds": samples.values,
            f"cpu_us_per_{quantity.work_unit}": samples.cpu_us,
        }
        for name, samples in result.samples.items()
    }
    others: Mapping[str, Any] = {
        name: {
            "ratio": _spread_as_json(result.ratio(name, baseline)),
            "cpu_ratio": _spread_as_json(result.cpu_ratio(name, baseline)),
        }
        for name in result.samples
        if baseline in result.samples and name != baseline
    }
    return {
        "name": quantity.name,
        "unit": quantity.unit,
        "higher_is_better": quantity.higher_is_better,
        "systems": systems,
        "times_better_than": {baseline: others} if others else {},
    }


def _spread_as_json(found: Spread | None) -> dict[str, float] | None:
    return None if found is None else {"median": found.median, "low": found.low, "high": found.high}
