"""Shows a run: as a live table on a terminal, elsewhere as a line every ten seconds.

Turns a RunStatus into text, for `run`, `status` and the summary at the end. Nothing here uses Spark, files or the
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from moldau.pipelines.running.progress import QueryStatus, RunStatus

LINE_EVERY_S: Final = 10.0
BATCH: Final = "batch"
"""The mode of a run with --batch."""
SPARKLINE_BARS: Final = "▁▂▃▄▅▆▇█"
COLUMNS: Final = (
    "QUERY",
    "STATE",
    "ROWS IN/S",
    "OUT/S",
    "LAG",
    "LAG S",
    "BATCH MS",
    "STATE ROWS",
    "WATERMARK",
    "RESTARTS",
)
RATES: Final = ""
"""The column of sparklines."""
LEFT_ALIGNED: Final = frozenset({"QUERY", "STATE", "WATERMARK", RATES})
FIRST_TO_GO: Final = (RATES, "WATERMARK", "STATE ROWS", "OUT/S", "BATCH MS", "RESTARTS", "LAG S")
SUMMARY_COLUMNS: Final = ("QUERY", "STATE", "ROWS IN", "ROWS OUT", "LAG", "LAST BATCH", "STATE ROWS", "RESTARTS")
SOURCE_COLUMNS: Final = ("SOURCE", "QUERY", "ROWS/S", "ROWS", "BAD", "LAG", "LAG S", "LAST CHANGE")
SINK_COLUMNS: Final = ("SINK", "ROWS/S", "ROWS", "RETRIES", "DEAD LETTERS", "LAST ERROR")
LEFT_ALIGNED_ENDS: Final = frozenset({"SOURCE", "QUERY", "SINK", "LAST ERROR"})
DOTS: Final = {
    "starting": ("○", "yellow"),
    "running": ("●", "green"),
    "restarting": ("↻", "yellow"),
    "stopping": ("○", "yellow"),
    "stopped": ("■", "dim"),
    "finished": ("✔", "green"),
    "failed": ("✖", "red"),
    "not running": ("■", "dim"),
}


def number(value: float | None) -> str:
    """Return a short text for people: 950, 12.3k, 4.56M."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{unit}"
    return f"{value:.1f}" if 0 < value < 9.95 and value != int(value) else f"{value:.0f}"


def count(value: int | None) -> str:
    """Return an exact number for people: 110,000."""
    return "-" if value is None else f"{value:,}"


def bytes_text(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,} {unit}"
        count = (count + 512) // 1024
    raise AssertionError("the loop ends with GiB")


def sparkline(values: Sequence[float]) -> str:
    """Return one bar per value; the largest value has full height."""
    top = max(values, default=0.0)
    if top <= 0:
        return SPARKLINE_BARS[0] * len(values)
    return "".join(
        SPARKLINE_BARS[min(len(SPARKLINE_BARS) - 1, int(value / top * len(SPARKLINE_BARS)))] for value in values
    )


def cells(query: QueryStatus) -> tuple[str, ...]:
    """Return the cells of one query for COLUMNS."""
    return (
        query.name,
        query.state,
        number(query.rows_in_per_second),
        number(query.rows_out_per_second),
        count(query.lag_records),
        number(query.lag_seconds),
        "-" if query.batch_ms is None else str(query.batch_ms),
        number(query.state_rows),
        readable_timestamp(query.watermark),
        str(query.restarts),
    )


def summary_cells(query: QueryStatus, mode: str) -> tuple[str, ...]:
    """Return the cells of one query for SUMMARY_COLUMNS. In a --batch run ROWS IN is "-": Spark does not
    report it."""
    return (
        query.name,
        query.state,
        "-" if mode == BATCH else count(query.rows_in),
        count(query.rows_out),
        count(query.lag_records),
        "-" if query.batch_id is None else str(query.batch_id),
        number(query.state_rows),
        str(query.restarts),
    )


def source_rows(status: RunStatus) -> list[tuple[str, ...]]:
    """Return the cells for SOURCE_COLUMNS of each stream that each query reads."""
    return [
        (
            name,
            query.name,
            number(source.rows_per_second),
            count(source.rows),
            count(query.bad_records[name].bad) if name in query.bad_records else "-",
            count(source.lag_records) if source.lag_bytes is None else f"{bytes_text(source.lag_bytes)} of the log",
            number(source.lag_seconds),
            _age(source.last_change_ms, status.updated),
        )
        for query in status.queries
        for name, source in query.sources.items()
    ]


def sink_rows(status: RunStatus) -> list[tuple[str, ...]]:
    """Return the cells for SINK_COLUMNS of each sink. The error is that of its backend, or else that of its query."""
    return [
        (
            name,
            number(sink.rows_per_second),
            count(sink.rows),
            count(sink.retries),
            count(sink.dead_letters),
            sink.last_error or query.last_error or "-",
        )
        for query in status.queries
        for name, sink in query.sinks.items()
    ]


def _age(time_ms: int | None, now: str) -> str:
    """Return how long ago something was, for people: 3 s ago, 5 min ago."""
    if time_ms is None:
        return "-"
    seconds = max(0, round(datetime.fromisoformat(now).timestamp() - time_ms / 1000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit} ago"
    return f"{seconds} s ago"


def readable_timestamp(timestamp: str | None) -> str:
    """Return a timestamp for people; "-" for none, and for 1970, with which Spark's watermarks start."""
    if timestamp is None or timestamp.startswith("1970-01-01T00:00:00"):
        return "-"
    return timestamp.replace("T", " ").removesuffix("Z").partition(".")[0]


def table(status: RunStatus, width: int) -> RenderableType:
    """Return a table of all queries with sparklines, not wider than `width`, and their errors below. Return the summary
    of a run that is over."""
    if status.is_over:
        return summary(status)
    rows = [(*cells(query), sparkline(query.rates)) for query in status.queries]
    shown = _fit_columns((*COLUMNS, RATES), rows, width)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        drawn.add_column(column, justify="left" if column in LEFT_ALIGNED else "right", no_wrap=True)
    for query, row in zip(status.queries, rows, strict=True):
        dot, colour = DOTS[query.state]
        by_column = dict(zip((*COLUMNS, RATES), row, strict=True))
        styled = {"STATE": Text(f"{dot} {query.state}", style=colour), RATES: Text(by_column[RATES], style="cyan")}
        drawn.add_row(*(styled.get(column, by_column[column]) for column in shown))
    return Group(_title(status), drawn, *_ends(status), *_lines_below(status))


def _fit_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the columns that fit into the width; leave out the least important ones first."""
    widths = {
        column: max(map(len, texts)) + (2 if column == "STATE" else 0)
        for column, *texts in zip(columns, columns, *rows, strict=True)
    }
    for column in FIRST_TO_GO:
        if sum(widths.values()) + 2 * (len(widths) - 1) <= width:
            break
        del widths[column]
    return list(widths)


def summary(status: RunStatus) -> RenderableType:
    """Return the summary of a run that is over."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in SUMMARY_COLUMNS:
        drawn.add_column(column, justify="left" if column in LEFT_ALIGNED else "right")
    for query in status.queries:
        dot, colour = DOTS[query.state]
        name, state, *rest = summary_cells(query, status.mode)
        drawn.add_row(name, Text(f"{dot} {state}", style=colour), *rest)
    return Group(_title(status), drawn, *_ends(status), *_lines_below(status))


def _ends(status: RunStatus) -> Iterator[RenderableType]:
    """Yield the tables of sources and sinks."""
    for columns, rows in _tables_of_ends(status):
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            is_left = column in LEFT_ALIGNED_ENDS
            drawn.add_column(column, justify="left" if is_left else "right", no_wrap=True, overflow="ellipsis")
        for row in rows:
            drawn.add_row(*map(Text, row))
        yield Text()
        yield drawn


def _tables_of_ends(status: RunStatus) -> Iterator[tuple[Sequence[str], Sequence[tuple[str, ...]]]]:
    tables = (SOURCE_COLUMNS, source_rows(status)), (SINK_COLUMNS, sink_rows(status))
    return ((columns, rows) for columns, rows in tables if rows)


def plain_table(status: RunStatus) -> list[str]:
    """Return the table of all queries as text: rates of a run that is going on, totals of one that is over; below it
    those of sources and sinks."""
    if status.is_over:
        lines = plain_rows(SUMMARY_COLUMNS, [summary_cells(query, status.mode) for query in status.queries])
    else:
        lines = plain_rows(COLUMNS, [cells(query) for query in status.queries])
    for columns, rows in _tables_of_ends(status):
        lines += ["", *plain_rows(columns, rows, LEFT_ALIGNED_ENDS)]
    return lines


def plain_rows(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str] = LEFT_ALIGNED
) -> list[str]:
    """Return a table as padded text without escape codes, two spaces between columns; `left` ones are left-aligned."""
    lines = [list(columns), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if name in left else cell.rjust(width)
            for cell, width, name in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def phase(status: RunStatus) -> str | None:
    """Return what the run waits for until each query has run a batch; None from then on."""
    if status.state == "starting":
        return status.message
    if status.state != "running":
        return None
    queries = _queries_of_run(status)
    if coming := [query.name for query in queries if query.state == "starting" and query.batch_id is None]:
        return f"{len(queries) - len(coming)} of {len(queries)} queries started"
    if first := [query.name for query in status.queries if _has_done_nothing(query)]:
        return f"first micro-batch of {', '.join(first)}"
    return None


def _queries_of_run(status: RunStatus) -> list[QueryStatus]:
    """Return the queries without those that --sink left out."""
    return [query for query in status.queries if query.state != "not running"]


def _has_done_nothing(query: QueryStatus) -> bool:
    return query.state == "running" and query.batch_id is None and query.lag_records is None


def waiting_message(queries: Sequence[str]) -> str:
    """Return what a run that was asked to stop waits for."""
    batches = "its batch" if len(queries) == 1 else "their batches"
    return f"waiting for {', '.join(queries)} to finish {batches}; Ctrl-C again does not wait" if queries else "ending"


def line(status: RunStatus) -> str:
    """Return the run in one line, for a log file."""
    now = phase(status)
    if now is not None and not any(query.rows_in for query in status.queries):
        return f"{_time_of_day(status.updated)} {status.pipeline} {status.state} · {now}"
    queries = _queries_of_run(status)
    running = sum(query.state == "running" for query in queries)
    parts = [
        f"{_time_of_day(status.updated)} {status.pipeline} {status.state}",
        f"{running} of {len(queries)} queries running",
    ]
    if status.mode == BATCH:
        parts.append(f"{sum(query.rows_out or 0 for query in status.queries):,} rows written in total")
    else:
        parts.append(f"{number(sum(query.rows_in_per_second for query in status.queries))} rows/s in")
        parts.append(f"{sum(query.rows_in for query in status.queries):,} rows read in total")
    if (lag := _lag(status)) is not None:
        parts.append(lag)
    if restarts := sum(query.restarts for query in status.queries):
        parts.append(f"{restarts} restart{'s' if restarts > 1 else ''}")
    return " · ".join(parts)


def _lag(status: RunStatus) -> str | None:
    """Return the lag of the query that is furthest behind; "at least" while the position of some is unknown."""
    of_run = _queries_of_run(status)
    with_lag = [query for query in of_run if query.lag_records is not None]
    if not with_lag:
        return None
    unknown = [query for query in of_run if query.lag_records is None and query.batch_id is None]
    largest = max(query.lag_records or 0 for query in with_lag)
    if unknown and not largest:
        return None
    ages = [query.lag_seconds for query in with_lag if query.lag_records]
    oldest = max((age for age in ages if age is not None), default=0.0)
    seconds = "" if unknown or None in ages else f" ({number(oldest)} s)"
    return f"lag {'at least ' if unknown else ''}{count(largest)}{seconds}"


class Display(Protocol):
    """The output of a run."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, status: RunStatus) -> None:
        """Show the status; called about once a second."""

    def say(self, text: str) -> None:
        """Print a line about an event."""


class LiveDisplay:
    """A table at the bottom of the terminal, with the lines of `say` above it. The summary replaces it at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._last: RunStatus | None = None

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._last is not None:
            self._console.print(summary(self._last))

    def show(self, status: RunStatus) -> None:
        self._last = status
        self._live.update(table(status, self._console.width))

    def say(self, text: str) -> None:
        self._console.print(Text(text))


class PlainDisplay:
    """A line every ten seconds and the summary on `out`; the lines of `say` on `err`, with the time."""

    def __init__(self, out: TextIO, err: TextIO, now: Callable[[], str]) -> None:
        self._out, self._err, self._now = out, err, now
        self._last: RunStatus | None = None
        self._shown_s: float | None = None
        self._printed: str | None = None
        """The last line of `show`."""

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            self._print_line(self._last)
            print("\n".join(plain_table(self._last)), file=self._out, flush=True)
            if self._last.state in ("finished", "stopped") and self._last.message:
                for text in self._last.message.splitlines():
                    self.say(text)

    def show(self, status: RunStatus) -> None:
        self._last = status
        now_s = datetime.fromisoformat(status.updated).timestamp()
        if self._shown_s is None or now_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = now_s
            self._print_line(status)

    def _print_line(self, status: RunStatus) -> None:
        """Print the line of a status, unless it was the last line printed: `show` may have printed the final status
        just before."""
        text = line(status)
        if text != self._printed:
            print(text, file=self._out, flush=True)
        self._printed = text

    def say(self, text: str) -> None:
        print(f"{_time_of_day(self._now())} {text}", file=self._err, flush=True)


def _title(status: RunStatus) -> Text:
    dot, colour = DOTS[status.state]
    title = Text.assemble((f"{dot} ", colour), (status.pipeline, "bold"), f"  {status.state}, {status.mode}")
    if (now := phase(status)) is not None:
        title.append(f", {now}", style="yellow")
    title.append(
        f", since {readable_timestamp(status.started)} UTC, process {status.pid} on {status.host}", style="dim"
    )
    title.no_wrap, title.overflow = True, "ellipsis"
    return title


def _lines_below(status: RunStatus) -> list[Text]:
    lines = [
        Text(f"{query.name}: {query.last_error}", style="red")
        for query in status.queries
        if query.last_error and query.state in ("restarting", "failed")
    ]
    lines += [Text(f"{query.name}: {query.waiting}", style="yellow") for query in status.queries if query.waiting]
    if status.note:
        lines.append(Text(status.note, style="yellow"))
    if status.message and status.message != phase(status):  # the title has that
        lines.append(Text(status.message, style="red" if status.state == "failed" else "yellow"))
    return lines


def _time_of_day(timestamp: str) -> str:
    return timestamp.partition("T")[2][:8]
