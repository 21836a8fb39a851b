"""The ratios as a picture: a group of bars for each workload, and a line at 1.0. Only this needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

COLORS = ("#2f6f9f", "#e0a030", "#7a9a55", "#a05070")
GROUP_WIDTH = 0.8
INCHES_PER_BAR = 0.24


def plot_ratios(
    path: Path, title: str, names: Sequence[str], series: Mapping[str, Sequence[float | None]], caption: str
) -> None:
    """Horizontal, since names are long; logarithmic, since twice as good and half as good are equally far from 1.0."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = 1.6 + INCHES_PER_BAR * len(names) * (len(series) + 0.6)
    figure, axes = pyplot.subplots(figsize=(9, height), layout="constrained")
    thickness = GROUP_WIDTH / len(series)
    for place, (label, ratios) in enumerate(series.items()):
        bars = [(row + (place + 0.5) * thickness - GROUP_WIDTH / 2, ratio) for row, ratio in enumerate(ratios) if ratio]
        drawn = axes.barh(
            [at for at, _ in bars],
            [ratio - 1 for _, ratio in bars],
            thickness * 0.92,
            left=1,
            label=label,
            color=COLORS[place % len(COLORS)],
        )
        axes.bar_label(drawn, [f" {ratio:.2f} " for _, ratio in bars], fontsize=8)
    axes.axvline(1.0, color="black", linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_xlim(*_limits([ratio for ratios in series.values() for ratio in ratios if ratio]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(caption)
    axes.legend(loc="best", frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _limits(ratios: Sequence[float]) -> tuple[float, float]:
    """Whole powers of two around all bars, with room for their labels."""
    low = math.floor(math.log2(min([*ratios, 1.0])) - 0.6)
    high = math.ceil(math.log2(max([*ratios, 1.0])) + 0.6)
    return float(2.0**low), float(2.0**high)
