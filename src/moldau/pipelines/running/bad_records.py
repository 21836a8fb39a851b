"""Warns if too many records of a source are bad, and ends the run if the pipeline file says so (fail_above).

With a schema that fits no record, all records become dead letters, and nothing fails. Pure: counts in, messages out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.pipelines.running.progress import Counted, QueryStatus, RunState, RunStatus
from moldau.pipelines.spec import DROP, Pipeline, TopicSource

WARN_ABOVE: Final = 0.1
UNFINISHED: Final[frozenset[RunState]] = frozenset({"running", "stopping"})
"""If the last status has one of these states, its run was killed."""
ENOUGH: Final = 100
"""A running pipeline judges the share of bad records only after so many records; at the end any number will do."""


class Reading(NamedTuple):
    """What the query that has read most records of a source has counted."""

    counted: Counted
    query: str

    def __str__(self) -> str:
        records, bad = self.counted
        return f"{bad:,} of {records:,} records read by {self.query} in this run ({bad * 100 / records:.3g} %)"


@dataclass(frozen=True, slots=True)
class Rule:
    """When the bad records of one source cause a warning, and when they end the run."""

    source: str
    fate: str | None
    """Where the bad records go, for messages; None if that is of no use to the user."""
    fail_above: float | None = None
    """In percent."""

    def warning(self, reading: Reading) -> str:
        return self._with_fate(f"source {self.source}: {reading} are bad")

    def killed_run_summary(self, counted: Counted) -> str:
        if not counted.records:
            return f"bad records of source {self.source} were not counted"
        count = f"{counted.bad:,} of {counted.records:,} records of source {self.source}"
        return self._with_fate(f"as far as it had counted, {count} were bad")

    def refusal(self, reading: Reading) -> str:
        assert self.fail_above is not None
        allowed = f"fail_above: {self.fail_above:.4g}%"
        return self._with_fate(f"source {self.source}: {reading} are bad, more than {allowed}")

    def warns(self, counted: Counted, enough: int) -> bool:
        return counted.bad > 0 and counted.records >= enough and counted.bad > WARN_ABOVE * counted.records

    def refuses(self, counted: Counted, enough: int) -> bool:
        if self.fail_above is None or counted.records < enough:
            return False
        return counted.bad * 100 > self.fail_above * counted.records

    def _with_fate(self, text: str) -> str:
        return text if self.fate is None else f"{text}; {self.fate}"


Fate = Callable[[TopicSource], str | None]


def fate_in_run(source: TopicSource) -> str | None:
    """Return where the bad records of a run are; None for a source whose first bad record ends the run."""
    if source.dead_letter == DROP:
        return "they are left out"
    topic = source.dead_letter_topic
    return None if topic is None else f"they are in topic {topic}: `moldau consume {topic} --json` shows why"


def fate_in_test(source: TopicSource) -> str | None:
    """Return where the bad records of a test case are; None for dead letters, which end with the test's broker."""
    return "they are left out" if source.dead_letter == DROP else None


def rules(pipeline: Pipeline, fate: Fate = fate_in_run) -> list[Rule]:
    """Return a rule for each topic source whose records can be bad: all except those of format raw."""
    topics = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    sources = [source for source in topics if source.format != "raw"]
    return [Rule(source.name, fate(source), source.fail_above) for source in sources]


def readings(queries: Iterable[QueryStatus]) -> dict[str, Reading]:
    """Return what was counted, by source. If several queries count a source, the one that has read most is returned."""
    most: dict[str, Reading] = {}
    for query in queries:
        for source, counted in query.bad_records.items():
            if source not in most or counted > most[source].counted:
                most[source] = Reading(counted, query.name)
    return most


@dataclass(slots=True)
class BadRecords:
    """The bad records of a run. Warns only once of each source while it runs."""

    rules: Sequence[Rule]
    warned: set[str]

    def new_warnings(self, queries: Iterable[QueryStatus]) -> list[str]:
        """Return the warnings that it has not returned before."""
        above = [(rule, reading) for rule, reading in self._readings(queries) if rule.warns(reading.counted, ENOUGH)]
        new = [(rule, reading) for rule, reading in above if rule.source not in self.warned]
        self.warned |= {rule.source for rule, _ in new}
        return [rule.warning(reading) for rule, reading in new]

    def summary(self, queries: Iterable[QueryStatus]) -> list[str]:
        """Return a line for each source with bad records, for the end of the run."""
        return [rule.warning(reading) for rule, reading in self._readings(queries) if reading.counted.bad]

    def of_killed_run(self, last: RunStatus | None) -> list[str]:
        """Return the summary of the last run if it was killed before it could print one. Batches that were committed
        after its last status are not in its counts."""
        if last is None or last.state not in UNFINISHED:
            return []
        counts = {source: reading.counted for source, reading in readings(last.queries).items()}
        lines = [rule.killed_run_summary(counts.get(rule.source, Counted(0, 0))) for rule in self.rules]
        return [f"the last run was killed; {line}" for line in lines]

    def refusal(self, queries: Iterable[QueryStatus], is_over: bool) -> str | None:
        """Return why the run must end as failed, or None."""
        enough = 1 if is_over else ENOUGH
        refused = (
            (rule, reading) for rule, reading in self._readings(queries) if rule.refuses(reading.counted, enough)
        )
        return next((rule.refusal(reading) for rule, reading in refused), None)

    def _readings(self, queries: Iterable[QueryStatus]) -> list[tuple[Rule, Reading]]:
        by_source = readings(queries)
        return [(rule, by_source[rule.source]) for rule in self.rules if rule.source in by_source]
