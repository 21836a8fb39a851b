"""The CPU time of a command with every process that it starts, at any depth.

This process adopts orphans (as Linux's subreaper), so that all descendants of the command stay below it. They are
sampled ten times a second: the last moments of each process are missing, and so is all of one that begins and ends
between two samples. The commands measured here take seconds.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.brokers import procfs

LOOK_EVERY_S = 0.1
PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class Cost:
    """The processes of one command, each with its command line and its CPU seconds when last seen."""

    status: int = 0
    processes: dict[tuple[int, float], tuple[str, float]] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        return sum(seconds for _, seconds in self.processes.values())

    def by_kind(self, kinds: Mapping[str, str]) -> dict[str, tuple[int, float]]:
        """How many processes and CPU seconds of each kind: the first whose word is in the command line."""
        totals: dict[str, tuple[int, float]] = {}
        for command, seconds in self.processes.values():
            kind = next((kind for word, kind in kinds.items() if word in command), "others")
            count, total = totals.get(kind, (0, 0.0))
            totals[kind] = count + 1, total + seconds
        return totals


def cost_of(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run the command to its end, and until all its descendants have ended."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    cost, over = Cost(), threading.Event()
    others = set(procfs.children(os.getpid()))

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            _look(cost, others)

    watcher = threading.Thread(target=look)
    with subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        watcher.start()
        _, stderr = process.communicate()
        cost.status = process.returncode
        while adopted := set(procfs.children(os.getpid())) - others:
            _reap(adopted)
    over.set()
    watcher.join()
    if cost.status:
        raise RuntimeError(f"{' '.join(command)} ended with status {cost.status}: {stderr.decode(errors='replace')}")
    return cost


def _reap(adopted: set[int]) -> None:
    """Wait until they have ended. Their own children are adopted then."""
    for pid in adopted:
        os.waitpid(pid, 0)


def _look(cost: Cost, others: set[int]) -> None:
    waiting = [pid for pid in procfs.children(os.getpid()) if pid not in others]
    while waiting:
        pid = waiting.pop()
        waiting += procfs.children(pid)
        try:
            key = pid, procfs.started(pid)
            command = " ".join(procfs.command_line(pid)) or cost.processes.get(key, ("", 0.0))[0]
            cost.processes[key] = command, procfs.cpu_seconds(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
