"""The progress line of a query: Spark's reports summed up, formatted, and shown on a terminal, a log or a notebook."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from moldau.spark.progress.screens import LINE_EVERY_S, Lines, Notebook, Terminal
from moldau.spark.progress.showing import reason
from moldau.spark.progress.tally import WINDOW_S, Progress, Tally, lag

START_S = 1_794_850_000.0


def report(batch: int, rows: int, at_s: float = 0.0, end: int = 0, latest: int = 0, **more: Any) -> dict[str, Any]:
    source = {"endOffset": json.dumps({"t": {"0": end}}), "latestOffset": {"t": {"0": latest}}}
    durations = {"addBatch": 100, "triggerExecution": 150} if rows else {"triggerExecution": 3}
    timestamp = datetime.fromtimestamp(START_S + at_s, UTC).isoformat(timespec="milliseconds")
    return {
        "runId": "r", "batchId": batch, "timestamp": timestamp,
        "numInputRows": rows, "durationMs": durations, "sources": [source], **more,
    }  # fmt: skip


def tally() -> Tally:
    return Tally(Progress(name="counts"), began_s=START_S)


class TestTally:
    def test_a_new_query_is_shown_as_starting(self) -> None:
        assert tally().progress.line() == "counts: starting"

    def test_batches_add_up(self) -> None:
        counts = tally()
        counts.take([report(0, 1000, 0.1, 1000, 5000), report(1, 500, 0.5, 1500, 5000)], START_S + 1)
        assert counts.progress.line() == "counts: running · batch 1 (150 ms) · 1,500 rows in · 1,500 rows/s · lag 3,500"

    def test_a_report_counts_once(self) -> None:
        counts = tally()
        counts.take([report(0, 10)], START_S + 1)
        counts.take([report(0, 10), report(1, 5)], START_S + 2)
        counts.take([report(1, 5)], START_S + 3)
        assert counts.progress.rows_in == 15

    def test_an_idle_query_keeps_its_last_batch_and_loses_its_rate(self) -> None:
        counts = tally()
        counts.take([report(0, 100)], START_S + 5)
        assert counts.progress.rows_per_second == 20
        counts.take([report(1, 0, 1.0, end=100, latest=100)], START_S + WINDOW_S + 1)
        assert counts.progress.line() == "counts: running · batch 0 (150 ms) · 100 rows in · 0.0 rows/s · lag 0"

    def test_the_rate_is_computed_over_the_window(self) -> None:
        counts = tally()
        for second in range(60):
            counts.take([report(second, 30, second)], START_S + second + 0.5)
        assert counts.progress.rows_per_second == pytest.approx(30, rel=0.11)

    def test_batches_before_the_display_started_keep_their_own_time(self) -> None:
        counts = tally()
        counts.take([report(batch, 30, batch - 60) for batch in range(60)], START_S)
        assert counts.progress.rows_in == 1800
        assert counts.progress.rows_per_second == pytest.approx(30, rel=0.11)

    def test_state_rows_are_shown_if_there_are_any(self) -> None:
        counts = tally()
        counts.take([report(0, 1, stateOperators=[{"numRowsTotal": 7}, {"numRowsTotal": 2000}])], START_S + 1)
        assert counts.progress.line().endswith(" · 2,007 rows of state")

    def test_the_line_of_a_finished_or_failed_query(self) -> None:
        counts = tally()
        counts.take([report(0, 1, end=1, latest=1)], START_S + 1)
        counts.set_state("finished")
        assert counts.progress.line() == "counts: finished · batch 0 (150 ms) · 1 row in · lag 0"
        counts.set_state("failed", "There is no topic t")
        assert counts.progress.line().endswith("lag 0 · There is no topic t")


@pytest.mark.parametrize(
    ("sources", "behind"),
    [
        ([], None),
        ([{"endOffset": "5", "latestOffset": "7"}], None),
        ([{"endOffset": None, "latestOffset": None}], None),
        ([{"endOffset": '{"t": {"0": 5}}', "latestOffset": None}], None),
        ([{"endOffset": '{"t": {"0": 5, "1": 9}}', "latestOffset": '{"t": {"0": 8, "1": 4}}'}], 3),
        ([{"endOffset": {"a": {"0": 1}}, "latestOffset": {"a": {"0": 2}}}, {"endOffset": "x", "latestOffset": ""}], 1),
    ],
)
def test_lag_is_latest_offset_minus_end_offset(sources: list[dict[str, Any]], behind: int | None) -> None:
    assert lag(sources) == behind


def test_the_reason_of_a_failure_is_extracted() -> None:
    ours = "[X] Failed when Python streaming data source perform latestOffset: a.b.KafkaError: There is no topic t\n X"
    assert reason(ours) == "There is no topic t"
    users = 'x Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad\n SQLSTATE: 38000'
    assert reason(users) == "ValueError: bad"
    assert reason("[STREAM_FAILED] Query [id] terminated with exception: [Y] It broke. SQLSTATE: XXKST") == "It broke."


class TestScreens:
    def test_a_terminal_shows_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "9")
        out = io.StringIO()
        terminal = Terminal(out)
        terminal.show("one", 0.0)
        terminal.show("longer than that", 0.1)
        terminal.end("longer than that")
        assert out.getvalue() == "\rone\x1b[K\rlonger …\x1b[K\rlonger than that\x1b[K\n"

    @pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
    def test_characters_that_the_output_cannot_encode_are_replaced(
        self, monkeypatch: pytest.MonkeyPatch, encoding: str
    ) -> None:
        monkeypatch.setenv("COLUMNS", "9")
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, encoding=encoding, newline="")
        Terminal(out).show("longer than that", 0.0)
        Lines(out).end("longer …")
        assert raw.getvalue() == b"\rlonger ?\x1b[Klonger ?\n"

    def test_a_log_gets_few_lines_and_the_last_one(self) -> None:
        out = io.StringIO()
        lines = Lines(out)
        for tenth in range(int(LINE_EVERY_S * 10) + 5):
            lines.show(f"at {tenth}", tenth / 10)
        lines.end("the end")
        assert out.getvalue().splitlines() == ["at 0", "at 100", "the end"]

    def test_a_notebook_has_one_output(self) -> None:
        shown: list[object] = []

        class Handle:
            def update(self, data: dict[str, str], raw: bool) -> None:
                shown.append(("update", data["text/plain"]))

        def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
            assert (raw, display_id) == (True, True)
            shown.append(("display", data["text/plain"]))
            return Handle()

        notebook = Notebook(display)
        notebook.show("one", 0.0)
        notebook.show("two", 1.0)
        notebook.end("three")
        assert shown == [("display", "one"), ("update", "two"), ("update", "three")]
