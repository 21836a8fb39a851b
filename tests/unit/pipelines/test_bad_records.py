"""When a share of bad records causes a warning, when it ends the run, and what a killed run had counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.bad_records import ENOUGH, BadRecords, Rule, fate_in_run, fate_in_test, rules
from moldau.pipelines.running.progress import Counted, Gauge, QueryStatus, RunState, RunStatus

FATE = "they are in topic o.dead"


def query(name: str, records: int, bad: int) -> QueryStatus:
    return QueryStatus(name=name, bad_records={"orders": Counted(records, bad)})


def bad_records_of_orders(fail_above: float | None = None) -> BadRecords:
    return BadRecords([Rule("orders", FATE, fail_above)], set())


@pytest.mark.parametrize(
    ("records", "bad", "is_over", "is_reported"),
    [
        (1000, 100, False, False),
        (1000, 101, False, True),
        (ENOUGH - 1, ENOUGH - 1, False, False),
        (ENOUGH - 1, ENOUGH - 1, True, True),
        (6, 6, True, True),
        (0, 0, True, False),
    ],
)
def test_a_share_of_bad_records_above_a_tenth_is_reported(
    records: int, bad: int, is_over: bool, is_reported: bool
) -> None:
    one, queries = bad_records_of_orders(), [query("q", records, bad)]
    assert bool(one.summary(queries) if is_over else one.new_warnings(queries)) is is_reported
    assert one.refusal(queries, is_over) is None


def test_at_the_end_every_bad_record_is_reported() -> None:
    assert bad_records_of_orders().summary([query("q", 44_234, 1_320)]) == [
        f"source orders: 1,320 of 44,234 records read by q in this run (2.98 %) are bad; {FATE}"
    ]
    assert bad_records_of_orders().new_warnings([query("q", 44_234, 1_320)]) == []


def test_a_warning_is_given_once_with_the_counts_of_the_query_that_read_most() -> None:
    one = bad_records_of_orders()
    queries = [query("a", 200, 100), query("b", 110_000, 110_000), query("c", 0, 0)]
    warning = [f"source orders: 110,000 of 110,000 records read by b in this run (100 %) are bad; {FATE}"]
    assert one.new_warnings(queries) == warning
    assert one.new_warnings(queries) == []
    assert one.summary(queries) == warning


@pytest.mark.parametrize(
    ("records", "bad", "is_over", "is_refused"),
    [(1000, 5, False, False), (1000, 6, False, True), (50, 50, False, False), (50, 50, True, True)],
)
def test_more_bad_records_than_fail_above_end_the_run(records: int, bad: int, is_over: bool, is_refused: bool) -> None:
    refusal = bad_records_of_orders(fail_above=0.5).refusal([query("q", records, bad)], is_over)
    assert (refusal is not None) is is_refused
    if refusal:
        assert refusal.endswith(f"are bad, more than fail_above: 0.5%; {FATE}")


def test_counts_of_spark_are_added_up_and_kept_in_json() -> None:
    gauge = Gauge(QueryStatus(name="q"))
    for batch in range(3):
        counted = {"orders.parsed": {"records": 10, "bad": 2}, "other.parsed": {"records": None, "bad": None}}
        report = {"batchId": batch, "timestamp": str(batch), "observedMetrics": counted, "durationMs": {"addBatch": 1}}
        gauge.add_reports([report], batch)
    assert gauge.status.bad_records == {"orders": Counted(30, 6), "other": Counted(0, 0)}
    run = RunStatus(
        pipeline="p", mode="m", state="running", pid=1, host="h", started="a", updated="b", queries=(gauge.status,)
    )
    assert RunStatus.from_json(json.loads(json.dumps(run.to_json()))) == run


def run_in_state(state: RunState, *queries: QueryStatus) -> RunStatus:
    return RunStatus(
        pipeline="p", mode="continuous", state=state, pid=1, host="h", started="", updated="", queries=queries
    )


@pytest.mark.parametrize("state", ["running", "stopping", "finished", "stopped", "failed"])
def test_the_next_run_reports_the_bad_records_that_a_killed_run_counted(state: RunState) -> None:
    last = run_in_state(state, query("a", 200, 12), query("b", 0, 0))
    expected = f"the last run was killed; as far as it had counted, 12 of 200 records of source orders were bad; {FATE}"
    assert bad_records_of_orders().of_killed_run(last) == ([expected] if state in ("running", "stopping") else [])


def test_a_killed_run_without_counts_names_no_dead_letter_topic() -> None:
    """Its first batch may not have ended: then the dead-letter topic is empty, or does not exist."""
    assert bad_records_of_orders().of_killed_run(None) == []
    for last in (run_in_state("running"), run_in_state("running", query("a", 0, 0))):
        assert bad_records_of_orders().of_killed_run(last) == [
            "the last run was killed; bad records of source orders were not counted"
        ]


PIPELINE = """
name: shop
sources:
  orders: {topic: orders, schema: a int, fail_above: 10%}
  users: {topic: users, schema: a int, dead_letter: drop}
  strict: {topic: strict, schema: a int, dead_letter: fail}
sinks:
  - {from: orders, console: true}
"""


def test_advice_about_a_dead_letter_topic_is_given_only_where_the_topic_stays(tmp_path: Path) -> None:
    """The topics of a test case are on a broker that ends with it."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    advice = "they are in topic orders.dead: `moldau consume orders.dead --json` shows why"
    assert [rule.fate for rule in rules(load(file), fate_in_run)] == [advice, "they are left out", None]
    assert [rule.fate for rule in rules(load(file), fate_in_test)] == [None, "they are left out", None]
    refusal = BadRecords(rules(load(file), fate_in_test), set()).refusal([query("q", 8, 2)], is_over=True)
    assert refusal == "source orders: 2 of 8 records read by q in this run (25 %) are bad, more than fail_above: 10%"
