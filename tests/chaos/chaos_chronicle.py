"""What happened when, in a file, and what must not have happened."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

KIND_WORDS = 4
"""The first words of an anomaly say of which kind it is."""
PRINTED_MAX = 3


class Chronicle:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._began_s = time.monotonic()
        self.faults: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        """Kinds of faults that this machine cannot have, and why."""
        self.anomalies: list[str] = []
        """The first of each kind."""
        self.kinds: Counter[str] = Counter()

    def note(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{datetime.now():%H:%M:%S.%f} {time.monotonic() - self._began_s:8.1f} s  {text}\n")

    def anomaly(self, text: str) -> None:
        """Note it; the first of each kind are printed too."""
        self.note(f"ANOMALY: {text}")
        kind = " ".join(re.sub(r"\d+|[(\[{].*", "", text.splitlines()[0]).split()[:KIND_WORDS])
        self.kinds[kind] += 1
        if self.kinds[kind] <= PRINTED_MAX:
            print(f"anomaly after {time.monotonic() - self._began_s:.0f} s: {text}", flush=True)
            self.anomalies.append(text)

    def summarise(self, figures: Iterable[str]) -> None:
        """Print what was injected, done and found."""
        faults = [f"  {count:5d} × {kind}" for kind, count in sorted(self.faults.items())]
        skipped = [f"  skipped: {kind}: {reason}" for kind, reason in self.skipped.items()]
        done = ["what was done:", *(f"  {figure}" for figure in figures)]
        found = [f"  {count:5d} × {kind} …" for kind, count in sorted(self.kinds.items())]
        anomalies = [f"anomalies: {self.kinds.total()}", *found]
        lines = [f"faults: {self.faults.total()}", *faults, *skipped, *done, *anomalies]
        print("\n".join(lines), flush=True)
        self.note("\n".join(lines))
