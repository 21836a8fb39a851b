"""How rows are delivered to a backend: the settings that all backends share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from moldau.backends.policy import Limits

GiveUpAs = Literal["fail", "dead_letter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    rate: float | None = None
    """At most so many rows a second, of all tasks together."""
    batch_rows: int = 1
    """At most so many rows in one `write`."""
    parallel: int = 1
    """How many threads write at the same time in each task, each with an object of the backend."""
    tasks: int = 1
    """How many tasks of Spark share the rows of a micro-batch. Each has a circuit of its own."""
    retries: int = 10
    retry_for_s: float | None = None
    timeout_s: float = 60.0
    """For one attempt."""
    give_up: GiveUpAs = "fail"
    """What happens to rows when the backend is away for longer than `retry_for_s`."""

    def limits(self) -> Limits:
        """Return the limits of one task."""
        rate = None if self.rate is None else self.rate / self.tasks
        return Limits(rate=rate, retries=self.retries, retry_for_s=self.retry_for_s)
