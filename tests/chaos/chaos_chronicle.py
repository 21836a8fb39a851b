"""What happened when, in a file, and what must not have happened."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path

ANOMALIES_MAX = 200


class Chronicle:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._began_s = time.monotonic()
        self.faults: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        """Kinds of faults that this machine cannot have, and why."""
        self.anomalies: list[str] = []

    def note(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{datetime.now():%H:%M:%S.%f} {time.monotonic() - self._began_s:8.1f} s  {text}\n")

    def anomaly(self, text: str) -> None:
        self.note(f"ANOMALY: {text}")
        print(f"anomaly after {time.monotonic() - self._began_s:.0f} s: {text[:1000]}", flush=True)
        if len(self.anomalies) < ANOMALIES_MAX:
            self.anomalies.append(text)
