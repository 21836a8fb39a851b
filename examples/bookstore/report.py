"""The end of the demo: what came out, drawn for the terminal and as a picture. Only draws what it is given."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from checks import Check, Counts, Suspicions
from recompute import WINDOW, Result
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

GROUPS = {
    "looking around": ("list_books", "book_details"),
    "buying and returning": ("buy", "order_status", "return"),
    "coming and going": ("login", "logout"),
}
COLORS = dict(zip(GROUPS, ("#2f6f9f", "#7a9a55", "#c9b27c"), strict=True))
SUSPICIOUS = "#b03a48"
BAR_WIDTH = 48
SUSPICIOUS_SHOWN = 8


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="Checked against plain Python", title_justify="left", title_style="bold")
    table.add_column("what the pipeline wrote")
    table.add_column("pipeline", justify="right")
    table.add_column("recomputed", justify="right")
    table.add_column("")
    for check in checks:
        mark = "[green]✓[/]" if check.agrees else "[bold red]✗ differs[/]"
        table.add_row(escape(check.what), check.pipeline, check.recomputed, mark)
    console.print(table)


def print_input(console: Console, expected: Result) -> None:
    console.print(
        f"[bold]{expected.read:,}[/] records were sent: [bold]{len(expected.events):,}[/] events,"
        f" {expected.duplicates:,} of them twice, {expected.too_late:,} too late, {expected.dead.total():,} unreadable."
        f" {expected.open_events:,} events are in windows that are still open.\n",
        highlight=False,
    )


def print_suspicious(console: Console, suspicions: Suspicions) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="Suspicious logins", title_justify="left", title_style="bold")
    for name in ("window", "user", "name"):
        table.add_column(name)
    table.add_column("failed", justify="right")
    table.add_column("from")
    found = sorted(suspicions.items())
    for (start, user_id), login in found[:SUSPICIOUS_SHOWN]:
        table.add_row(f"{start:%H:%M}", user_id, login.name or "?", str(login.failed), " ".join(login.countries))
    console.print(table)
    if len(found) > SUSPICIOUS_SHOWN:
        console.print(f"  … and {len(found) - SUSPICIOUS_SHOWN} more in [bold]bookstore.suspicious[/]\n")


def print_chart(console: Console, counts: Counts, suspicions: Suspicions) -> None:
    """A bar for each window, a colour for each group of events."""
    windows, turnover, alarms = _windows(counts), _turnover(counts), _alarms(suspicions)
    peak = max((window.total() for window in windows.values()), default=1)
    console.print("[bold]Events in ten minutes[/], and the turnover")
    console.print(Text("  ").join(Text.assemble(("█ ", color), group) for group, color in COLORS.items()))
    for start, groups in windows.items():
        line = Text(f"{start:%H:%M} ")
        for group, color in COLORS.items():
            line.append("█" * round(groups[group] / peak * BAR_WIDTH), color)
        line.append(f" {groups.total():,}")
        line.append(f"  {turnover[start]:,} €", "dim")
        if alarms[start]:
            line.append(f"  {'▲' * alarms[start]}", SUSPICIOUS)
        console.print(line, no_wrap=True, overflow="crop")
    console.print(Text.assemble(("▲", SUSPICIOUS), " a suspicious login\n"))


def draw_picture(path: Path, counts: Counts, suspicions: Suspicions) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    windows, turnover, alarms = _windows(counts), _turnover(counts), _alarms(suspicions)
    figure, (upper, lower) = pyplot.subplots(
        2, figsize=(9, 6), height_ratios=(3, 1.2), sharex=True, layout="constrained"
    )
    places = range(len(windows))
    below = [0] * len(windows)
    for group, color in COLORS.items():
        heights = [groups[group] for groups in windows.values()]
        upper.bar(places, heights, 0.85, below, color=color, label=group)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    marked = [(place, below[place], alarms[start]) for place, start in enumerate(windows) if alarms[start]]
    peak = max(below, default=1)
    upper.scatter(
        [place for place, _, _ in marked],
        [top + peak * 0.04 for _, top, _ in marked],
        [25 * count for _, _, count in marked],
        color=SUSPICIOUS,
        marker="^",
        label="suspicious logins",
        zorder=3,
    )
    upper.set_title("A night in the bookstore: events in ten minutes", loc="left", fontweight="bold")
    upper.set_ylim(0, peak * 1.25)
    upper.legend(loc="upper center", ncols=4, frameon=False)
    lower.bar(places, [float(turnover[start]) for start in windows], 0.85, color="#e0a030")
    lower.set_title("Turnover in €, returns taken off", loc="left")
    lower.set_xticks(places, [f"{start:%H:%M}" for start in windows], rotation=60)
    for axes in (upper, lower):
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _windows(counts: Counts) -> Mapping[datetime, Counter[str]]:
    """Events by group, of every window from the first to the last, also of those in which nothing happened."""
    group_of = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
    starts = sorted({start for start, _ in counts})
    windows: dict[datetime, Counter[str]] = {}
    if starts:
        for number in range((starts[-1] - starts[0]) // WINDOW + 1):
            windows[starts[0] + number * WINDOW] = Counter()
    for (start, kind), count in counts.items():
        windows[start][group_of[kind]] += count.events
    return windows


def _turnover(counts: Counts) -> Mapping[datetime, Decimal]:
    sums: defaultdict[datetime, Decimal] = defaultdict(Decimal)
    for (start, _), count in counts.items():
        sums[start] += count.turnover
    return sums


def _alarms(suspicions: Suspicions) -> Counter[datetime]:
    return Counter(start for start, _ in suspicions)
