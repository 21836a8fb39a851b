"""The display of a run: short numbers, a table on a terminal, one line every ten seconds elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from moldau.pipelines.running import display
from moldau.pipelines.running.progress import QueryStatus, RunStatus

COUNTS = QueryStatus(
    name="counts", state="running", rows_in_per_second=12345.0, rows_out_per_second=99.4, rows_in=2_000_000,
    rows_out=10, lag_records=1500, lag_seconds=2.25, batch_id=7, batch_ms=431, state_rows=12,
    watermark="2026-11-15T11:00:00.000Z",
    rates=(0.0, 5000.0, 10000.0),
)  # fmt: skip
DEAD = QueryStatus(name="events.dead-letters", state="restarting", restarts=2, last_error="no broker answers")
STATUS = RunStatus(
    pipeline="shop", mode="continuous", state="running", pid=42, host="here", started="2026-11-15T10:59:00.000Z",
    updated="2026-11-15T11:00:05.000Z", queries=(COUNTS, DEAD),
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0, "0"), (0.0, "0"), (0.04, "0.0"), (7, "7"), (7.25, "7.2"), (950, "950"), (999.6, "1.00k"),
        (1234, "1.23k"), (12345, "12.3k"), (99_990, "100k"), (123_456, "123k"), (4_560_000, "4.56M"), (7e9, "7.00G"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert display.number(value) == text


def test_a_sparkline_is_scaled_from_zero_to_the_largest_value() -> None:
    assert display.sparkline([0, 1, 4, 8]) == "▁▂▅█"
    assert display.sparkline([0, 0]) == "▁▁"
    assert display.sparkline([]) == ""


def drawn(renderable: object, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_phase_of_a_run_is_shown_until_its_first_batch() -> None:
    new = QueryStatus(name="counts", state="starting")
    idle = replace(new, name="lake", state="running")
    begun = replace(STATUS, queries=(new, idle))
    assert display.phase(replace(STATUS, state="starting", message="starting Java", queries=())) == "starting Java"
    assert display.line(begun) == "11:00:05 shop running · 1 of 2 queries started"
    both = replace(begun, queries=(replace(new, state="running"), idle))
    assert display.line(both) == "11:00:05 shop running · first micro-batch of counts, lake"
    assert "● shop  running, continuous, first micro-batch of counts, lake, since" in drawn(display.table(both, 200))
    assert display.phase(replace(both, queries=(replace(idle, lag_records=0), replace(idle, batch_id=0)))) is None
    assert display.phase(STATUS) is None
    assert display.phase(replace(both, state="stopping")) is None


def test_queries_that_a_run_leaves_out_are_not_counted() -> None:
    left_out = tuple(QueryStatus(name=name, state="not running") for name in ("lake", "history"))
    starting = replace(STATUS, queries=(QueryStatus(name="counts"), *left_out))
    assert display.line(starting) == "11:00:05 shop running · 0 of 1 queries started"
    running = replace(STATUS, queries=(COUNTS, *left_out))
    assert display.line(running).startswith("11:00:05 shop running · 1 of 1 queries running · 12.3k rows/s in")


def test_the_table_shows_all_numbers_of_a_query() -> None:
    text = drawn(display.table(STATUS, 200))
    assert "● shop  running, continuous, since 2026-11-15 10:59:00 UTC, process 42 on here" in text
    row = next(line for line in text.splitlines() if line.startswith("counts"))
    assert row.split() == [
        "counts", "●", "running", "12.3k", "99", "1,500", "2.2", "431", "12", "2026-11-15", "11:00:00", "0", "▁▅█",
    ]  # fmt: skip
    assert "events.dead-letters: no broker answers" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140])
def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_lines(width: int) -> None:
    queries = drawn(display.table(STATUS, width), width).splitlines()[1:4]
    assert [line.split()[0] for line in queries] == ["QUERY", "counts", "events.dead-letters"]
    assert ("WATERMARK" in queries[0]) is (width > 110)
    assert all("…" not in line for line in queries)
    assert "1,500" in queries[1]


def test_the_summary_counts_all_rows() -> None:
    text = drawn(display.summary(replace(STATUS, state="stopped", message="Ctrl-C")))
    row = next(line for line in text.splitlines() if line.startswith("counts"))
    assert row.split() == ["counts", "●", "running", "2,000,000", "10", "1,500", "7", "12", "0"]
    assert text.rstrip().endswith("Ctrl-C")


@pytest.mark.parametrize("state", ["starting", "running", "stopping", "stopped", "finished", "failed"])
def test_every_state_can_be_drawn(state: str) -> None:
    assert state in drawn(display.table(replace(STATUS, state=state), 200))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([(1500, 2.25, 7), (0, 0.0, 7)], "lag 1,500 (2.2 s)"),
        ([(1500, None, 7), (0, 0.0, 7)], "lag 1,500"),
        ([(0, 0.0, 7), (None, None, None)], None),
        ([(1500, 2.0, 7), (200, 2.0, 7), (None, None, None)], "lag at least 1,500"),
        ([(0, 0.0, 7), (None, None, 7)], "lag 0 (0 s)"),
        ([(None, None, None)], None),
    ],
)
def test_an_unknown_lag_is_not_shown_as_zero(
    lags: list[tuple[int | None, float | None, int | None]], expected: str | None
) -> None:
    """`lags` has the records, the seconds and the last batch of each query. Without a batch, the position is unknown; a
    query with a batch and without a lag reads no topic."""
    queries = tuple(
        replace(COUNTS, lag_records=records, lag_seconds=seconds, batch_id=batch) for records, seconds, batch in lags
    )
    parts = display.line(replace(STATUS, queries=queries)).split(" · ")
    assert [part for part in parts if part.startswith("lag")] == ([expected] if expected else [])


def test_the_note_of_a_run_is_shown() -> None:
    held_up = replace(STATUS, note="localhost:9092 does not answer")
    assert "localhost:9092 does not answer" in drawn(display.table(held_up, 200))


def test_without_a_terminal_a_line_is_printed_every_ten_seconds() -> None:
    out, err = io.StringIO(), io.StringIO()
    with display.PlainDisplay(out, err, lambda: "2026-11-15T11:00:25.500Z") as plain:
        for second in range(25):
            plain.show(replace(STATUS, updated=f"2026-11-15T11:00:{second:02}.000Z"))
        plain.say("something happened")
        ended = replace(STATUS, state="stopped", message="stopped by Ctrl-C\n3 records are bad")
        plain.show(replace(ended, updated="2026-11-15T11:00:24.000Z"))
    lines = out.getvalue().splitlines()
    assert [line[:8] for line in lines[:4]] == ["11:00:00", "11:00:10", "11:00:20", "11:00:24"]
    assert lines[0] == (
        "11:00:00 shop running · 1 of 2 queries running · 12.3k rows/s in · 2,000,000 rows read in total"
        " · lag at least 1,500 · 2 restarts"
    )
    assert lines[4].split() == [
        "QUERY",
        "STATE",
        "ROWS",
        "IN",
        "ROWS",
        "OUT",
        "LAG",
        "LAST",
        "BATCH",
        "STATE",
        "ROWS",
        "RESTARTS",
    ]
    assert lines[5].startswith("counts               running     2,000,000        10  1,500")
    assert err.getvalue().splitlines() == [
        "11:00:25 something happened",
        "11:00:25 stopped by Ctrl-C",
        "11:00:25 3 records are bad",
    ]
    assert "\x1b" not in out.getvalue()


def test_the_line_of_a_run_that_has_ended_is_printed_once() -> None:
    out = io.StringIO()
    with display.PlainDisplay(out, io.StringIO(), lambda: "2026-11-15T11:00:25.500Z") as plain:
        plain.show(replace(STATUS, state="finished"))
    assert sum("shop finished" in line for line in out.getvalue().splitlines()) == 1


def test_on_a_terminal_the_table_is_redrawn_and_the_summary_stays() -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=200)
    with display.LiveDisplay(console) as live:
        live.show(STATUS)
        live.say("something happened")
    text = terminal.getvalue()
    assert "something happened" in text
    assert "2,000,000" in text.rpartition("\x1b[2K")[2]


def test_the_message_of_a_run_is_shown_once() -> None:
    starting = replace(STATUS, state="starting", message="starting Java", queries=())
    assert drawn(display.table(starting, 200)).count("starting Java") == 1
    assert drawn(display.table(replace(STATUS, message="held up"), 200)).count("held up") == 1


def test_an_unset_watermark_is_shown_as_a_dash() -> None:
    assert display.readable_timestamp("1970-01-01T00:00:00.000Z") == "-"
    assert display.readable_timestamp(None) == "-"
