"""Whether too many records of a source are bad: a line above a share, and the end of the run where the file says so.

A schema that fits no record sends all of them to the dead letters, and nothing fails. Pure: numbers come in, words go
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.pipelines.running.progress import Counted, QueryStatus, RunState, RunStatus
from moldau.pipelines.spec import DROP, Pipeline, TopicSource

WARN_ABOVE: Final = 0.1
UNFINISHED: Final[frozenset[RunState]] = frozenset({"running", "stopping"})
"""States that only a run that was killed leaves behind."""
ENOUGH: Final = 100
"""Records, before a share of them says something; at the end of a run every number does."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is thought of the bad records of one source."""

    source: str
    fate: str
    """What becomes of them, in words."""
    fail_above: float | None = None

    def warning(self, counted: Counted) -> str:
        return f"source {self.source}: {_share(counted)} are bad; {self.fate}"

    def at_least(self, counted: Counted) -> str:
        known = f"at least {counted.bad:,} of {counted.records:,}" if counted.records else "none counted"
        return f"source {self.source} ({known}); {self.fate}"

    def refusal(self, counted: Counted) -> str:
        assert self.fail_above is not None
        allowed = f"fail_above: {self.fail_above:.4g}%"
        return f"source {self.source}: {_share(counted)} are bad, more than {allowed}; {self.fate}"

    def warns(self, counted: Counted, enough: int) -> bool:
        return counted.bad > 0 and counted.records >= enough and counted.bad > WARN_ABOVE * counted.records

    def refuses(self, counted: Counted, enough: int) -> bool:
        if self.fail_above is None or counted.records < enough:
            return False
        return counted.bad * 100 > self.fail_above * counted.records


def rules(pipeline: Pipeline) -> list[Rule]:
    """One for each topic whose records can be bad: raw bytes never are."""
    topics = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    sources = [source for source in topics if source.format != "raw"]
    return [Rule(source.name, _fate(source), source.fail_above) for source in sources]


def counted_by_source(queries: Iterable[QueryStatus]) -> dict[str, Counted]:
    """Several queries may read one source, each its own way through it: the one that has come furthest counts."""
    found: dict[str, Counted] = {}
    for query in queries:
        for source, counted in query.bad_records.items():
            found[source] = max(found.get(source, counted), counted)
    return found


@dataclass(slots=True)
class BadRecords:
    """Watches over a run. What was said is not said again."""

    rules: Sequence[Rule]
    warned: set[str]

    def new_warnings(self, queries: Iterable[QueryStatus]) -> list[str]:
        """Warnings that were not given before, while the run goes on."""
        due = [each for each in self._known(queries) if each[0].warns(each[1], ENOUGH)]
        new = [(rule, counted) for rule, counted in due if rule.source not in self.warned]
        self.warned |= {rule.source for rule, _ in new}
        return [rule.warning(counted) for rule, counted in new]

    def summary(self, queries: Iterable[QueryStatus]) -> list[str]:
        """All that were bad, when the run is over."""
        return [rule.warning(counted) for rule, counted in self._known(queries) if counted.bad]

    def of_killed_run(self, last: RunStatus | None) -> list[str]:
        """What the last run would have said at its end, if it was killed before it could. Its counts end with its last
        status: batches that were committed after that are in none."""
        if last is None or last.state not in UNFINISHED:
            return []
        counts = counted_by_source(last.queries)
        lines = [rule.at_least(counts.get(rule.source, Counted(0, 0))) for rule in self.rules]
        return [f"the last run was killed before it had counted all bad records of {line}" for line in lines]

    def refusal(self, queries: Iterable[QueryStatus], is_over: bool) -> str | None:
        """Why the run must end, if it must."""
        enough = 1 if is_over else ENOUGH
        known = self._known(queries)
        return next((rule.refusal(counted) for rule, counted in known if rule.refuses(counted, enough)), None)

    def _known(self, queries: Iterable[QueryStatus]) -> list[tuple[Rule, Counted]]:
        counted = counted_by_source(queries)
        return [(rule, counted[rule.source]) for rule in self.rules if rule.source in counted]


def _fate(source: TopicSource) -> str:
    if source.dead_letter == DROP:
        return "they are left out"
    topic = source.dead_letter_topic
    return f"they are in topic {topic}: `moldau consume {topic} --json` tells why"


def _share(counted: Counted) -> str:
    share = f"{counted.bad * 100 / counted.records:.3g} %"
    return f"{counted.bad:,} of {counted.records:,} records read by this run ({share})"
