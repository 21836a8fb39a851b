"""What a person sees of a run: a table that renews itself on a terminal, a line every ten seconds elsewhere.

A RunStatus comes in and text goes out; the same table serves `run`, `status` and the summary at the end. Nothing here
looks at Spark, files or the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
"""The mode of a run over a range of the past."""
SPARKS: Final = "▁▂▃▄▅▆▇█"
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
LEFT: Final = frozenset({"QUERY", "STATE", "WATERMARK", RATES})
FIRST_TO_GO: Final = (RATES, "WATERMARK", "STATE ROWS", "OUT/S", "BATCH MS", "RESTARTS", "LAG S")
SUMMARY_COLUMNS: Final = ("QUERY", "STATE", "ROWS IN", "ROWS OUT", "LAG", "LAST BATCH", "STATE ROWS", "RESTARTS")
DOTS: Final = {
    "starting": ("○", "yellow"),
    "running": ("●", "green"),
    "waiting": ("↻", "yellow"),
    "stopping": ("○", "yellow"),
    "stopped": ("■", "dim"),
    "finished": ("✔", "green"),
    "failed": ("✖", "red"),
    "not running": ("■", "dim"),
}


def number(value: float | None) -> str:
    """Short for a person: 950, 12.3k, 4.56M."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{unit}"
    return f"{value:.1f}" if 0 < value < 9.95 and value != int(value) else f"{value:.0f}"


def sparkline(values: Sequence[float]) -> str:
    """One bar per value, the largest of them at full height."""
    top = max(values, default=0.0)
    if top <= 0:
        return SPARKS[0] * len(values)
    return "".join(SPARKS[min(len(SPARKS) - 1, int(value / top * len(SPARKS)))] for value in values)


def cells(query: QueryStatus) -> tuple[str, ...]:
    """One query under COLUMNS."""
    return (
        query.name,
        query.state,
        number(query.rows_in_per_second),
        number(query.rows_out_per_second),
        number(query.lag_records),
        number(query.lag_seconds),
        "-" if query.batch_ms is None else str(query.batch_ms),
        number(query.state_rows),
        clock_time(query.watermark),
        str(query.restarts),
    )


def summary_cells(query: QueryStatus, mode: str) -> tuple[str, ...]:
    """One query under SUMMARY_COLUMNS. Of a batch Spark does not tell what it read."""
    return (
        query.name,
        query.state,
        "-" if mode == BATCH else f"{query.rows_in:,}",
        "-" if query.rows_out is None else f"{query.rows_out:,}",
        number(query.lag_records),
        "-" if query.batch_id is None else str(query.batch_id),
        number(query.state_rows),
        str(query.restarts),
    )


def clock_time(timestamp: str | None) -> str:
    """A watermark without its date if that is all it has: Spark begins with 1970, which means none yet."""
    if timestamp is None or timestamp.startswith("1970-01-01T00:00:00"):
        return "-"
    return timestamp.replace("T", " ").removesuffix("Z").partition(".")[0]


def table(status: RunStatus, width: int) -> RenderableType:
    """All queries as they are now, with a sparkline each, and what went wrong below; no wider than that."""
    rows = [(*cells(query), sparkline(query.rates)) for query in status.queries]
    shown = _fitting((*COLUMNS, RATES), rows, width)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        drawn.add_column(column, justify="left" if column in LEFT else "right", no_wrap=True)
    for query, row in zip(status.queries, rows, strict=True):
        dot, colour = DOTS[query.state]
        told = dict(zip((*COLUMNS, RATES), row, strict=True))
        styled = {"STATE": Text(f"{dot} {query.state}", style=colour), RATES: Text(told[RATES], style="cyan")}
        drawn.add_row(*(styled.get(column, told[column]) for column in shown))
    return Group(_title(status), drawn, *_errors(status))


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The columns that there is room for; the least telling ones go first."""
    needed = {
        column: max(map(len, told)) + (2 if column == "STATE" else 0)
        for column, *told in zip(columns, columns, *rows, strict=True)
    }
    for column in FIRST_TO_GO:
        if sum(needed.values()) + 2 * (len(needed) - 1) <= width:
            break
        del needed[column]
    return list(needed)


def summary(status: RunStatus) -> RenderableType:
    """The run as a whole, once it is over."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in SUMMARY_COLUMNS:
        drawn.add_column(column, justify="left" if column in LEFT else "right")
    for query in status.queries:
        dot, colour = DOTS[query.state]
        name, state, *rest = summary_cells(query, status.mode)
        drawn.add_row(name, Text(f"{dot} {state}", style=colour), *rest)
    return Group(_title(status), drawn, *_errors(status))


def plain_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str] = LEFT) -> list[str]:
    """A table as padded text, without escape codes: two spaces between columns, those in `left` to the left."""
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
    """What the run is about before all its queries have done something; None from then on."""
    if status.state == "starting":
        return status.message
    if status.state != "running":
        return None
    if coming := [query.name for query in status.queries if query.state == "starting" and query.batch_id is None]:
        return f"starting {len(coming)} of {len(status.queries)} queries"
    if first := [query.name for query in status.queries if _has_done_nothing(query)]:
        return f"first micro-batch of {', '.join(first)}"
    return None


def _has_done_nothing(query: QueryStatus) -> bool:
    return query.state == "running" and query.batch_id is None and query.lag_records is None


def line(status: RunStatus) -> str:
    """The run in one line, for a log file."""
    now = phase(status)
    if now is not None and not any(query.rows_in for query in status.queries):
        return f"{_time_of_day(status.updated)} {status.pipeline} {status.state} · {now}"
    running = sum(query.state == "running" for query in status.queries)
    told = [
        f"{_time_of_day(status.updated)} {status.pipeline} {status.state}",
        f"{running} of {len(status.queries)} queries running",
    ]
    if status.mode == BATCH:
        told.append(f"{sum(query.rows_out or 0 for query in status.queries):,} rows written by all of them")
    else:
        told.append(f"{number(sum(query.rows_in_per_second for query in status.queries))} rows/s in")
        told.append(f"{sum(query.rows_in for query in status.queries):,} rows read by all of them")
    if (lag := _lag(status)) is not None:
        told.append(lag)
    if restarts := sum(query.restarts for query in status.queries):
        told.append(f"{restarts} restart{'s' if restarts > 1 else ''}")
    return " · ".join(told)


def _lag(status: RunStatus) -> str | None:
    """Of the query that is furthest behind; "at least" while some have not said where they are."""
    running = [query for query in status.queries if query.state != "not running"]
    known = [query for query in running if query.lag_records is not None]
    if not known:
        return None
    unknown = [query for query in running if query.lag_records is None and query.batch_id is None]
    largest = max(query.lag_records or 0 for query in known)
    if unknown and not largest:
        return None
    ages = [query.lag_seconds for query in known if query.lag_records]
    oldest = max((age for age in ages if age is not None), default=0.0)
    seconds = "" if unknown or None in ages else f" ({number(oldest)} s)"
    return f"lag {'at least ' if unknown else ''}{number(largest)}{seconds}"


class View(Protocol):
    """Where a run shows itself."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, status: RunStatus) -> None:
        """The state of things; called about once a second."""

    def say(self, text: str) -> None:
        """Something happened that is worth a line."""


class LiveView:
    """A table at the bottom of the terminal; what is said scrolls by above it. Ends with the summary in its place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._last: RunStatus | None = None

    def __enter__(self) -> LiveView:
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


class PlainView:
    """A line every ten seconds on `out`, the summary at the end; what is said goes to `err`, with the time."""

    def __init__(self, out: TextIO, err: TextIO, now: Callable[[], str]) -> None:
        self._out, self._err, self._now = out, err, now
        self._last: RunStatus | None = None
        self._shown_s: float | None = None

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            print(line(self._last), file=self._out)
            rows = [summary_cells(query, self._last.mode) for query in self._last.queries]
            print("\n".join(plain_rows(SUMMARY_COLUMNS, rows)), file=self._out, flush=True)
            if self._last.state in ("finished", "stopped") and self._last.message:
                self.say(self._last.message)

    def show(self, status: RunStatus) -> None:
        self._last = status
        now_s = datetime.fromisoformat(status.updated).timestamp()
        if self._shown_s is None or now_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = now_s
            print(line(status), file=self._out, flush=True)

    def say(self, text: str) -> None:
        print(f"{_time_of_day(self._now())} {text}", file=self._err, flush=True)


def _title(status: RunStatus) -> Text:
    dot, colour = DOTS[status.state]
    told = Text.assemble((f"{dot} ", colour), (status.pipeline, "bold"), f"  {status.state}, {status.mode}")
    if (now := phase(status)) is not None:
        told.append(f", {now}", style="yellow")
    told.append(f", since {clock_time(status.started)} UTC, process {status.pid} on {status.host}", style="dim")
    told.no_wrap, told.overflow = True, "ellipsis"
    return told


def _errors(status: RunStatus) -> list[Text]:
    told = [
        Text(f"{query.name}: {query.last_error}", style="red")
        for query in status.queries
        if query.last_error and query.state in ("waiting", "failed")
    ]
    if status.note:
        told.append(Text(status.note, style="yellow"))
    if status.message:
        told.append(Text(status.message, style="red" if status.state == "failed" else "yellow"))
    return told


def _time_of_day(timestamp: str) -> str:
    return timestamp.partition("T")[2][:8]
