"""Other processes of this machine: when they were born, what they do, what they are.

Linux tells it in /proc. Elsewhere `ps` does, with POSIX' options and one field for each `-o`: by POSIX, what follows a
`=` is the heading of the column to the end of the word, and macOS' `ps` takes `stat=,lstart=` for one column. Dates
are asked for in one language and time zone: they are compared with those that another terminal has written down.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

RunPs = Callable[[Sequence[str]], str]
PROC: Final = "/proc"


@dataclass(frozen=True, slots=True)
class Process:
    """`cwd` and `environ` are unknown where the system does not tell them, as of somebody else's processes."""

    pid: int
    argv: tuple[str, ...]
    cwd: str = "."
    environ: Mapping[str, str] = field(default_factory=dict)


class Processes(Protocol):
    def birth_time(self, pid: int) -> str | None:
        """In whatever words the system says it; None if there is no such process, or only what is left of it until
        its parent looks."""
        ...

    def is_paused(self, pid: int) -> bool: ...

    def memory_bytes(self, pid: int) -> int | None:
        """What a process holds in memory now."""
        ...

    def all(self) -> Iterator[Process]:
        """Every process that can be looked at."""
        ...


class ProcFiles:
    """As Linux tells it."""

    def birth_time(self, pid: int) -> str | None:
        stat = self._stat(pid)
        return None if stat is None or stat[0] in "ZX" else stat[19]

    def is_paused(self, pid: int) -> bool:
        stat = self._stat(pid)
        return stat is not None and stat[0] in "Tt"

    def memory_bytes(self, pid: int) -> int | None:
        stat = self._stat(pid)
        return None if stat is None else int(stat[21]) * os.sysconf("SC_PAGE_SIZE")

    def all(self) -> Iterator[Process]:
        for name in os.listdir(PROC):
            if name.isdecimal():
                process = self._process(int(name))
                if process:
                    yield process

    def _stat(self, pid: int) -> list[str] | None:
        """The fields behind the program's name, which may itself hold spaces and brackets."""
        try:
            with open(f"{PROC}/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()
        except OSError:
            return None

    def _process(self, pid: int) -> Process | None:
        try:
            with open(f"{PROC}/{pid}/cmdline", "rb") as file:
                argv = tuple(os.fsdecode(word) for word in file.read().split(b"\0")[:-1])
        except OSError:
            return None  # ended while we looked
        try:
            with open(f"{PROC}/{pid}/environ", "rb") as file:
                pairs = (os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair)
                environ = {key: value for key, _, value in pairs}
            return Process(pid, argv, os.readlink(f"{PROC}/{pid}/cwd"), environ)
        except OSError:
            return Process(pid, argv)  # somebody else's: its command line is public, the rest is not


def run_ps(options: Sequence[str]) -> str:
    """What `ps` prints; nothing of a process that is gone, which is all that its exit status would tell."""
    environ = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    return subprocess.run(["ps", *options], capture_output=True, text=True, env=environ, errors="replace").stdout


class PsLines:
    """As `ps` tells it. Words of a command line are what stands between spaces: a path with one in it is two."""

    def __init__(self, run: RunPs = run_ps) -> None:
        self._run = run

    def birth_time(self, pid: int) -> str | None:
        state, _, time = self._ps(pid, "stat", "lstart").partition(" ")
        return None if not state or state.startswith("Z") else time.strip()

    def is_paused(self, pid: int) -> bool:
        return self._ps(pid, "stat").startswith("T")

    def memory_bytes(self, pid: int) -> int | None:
        kilobytes = self._ps(pid, "rss")
        return int(kilobytes) * 1024 if kilobytes.isdecimal() else None

    def all(self) -> Iterator[Process]:
        # -ww: else lines are cut at the width of the terminal.
        for line in self._run(["-A", "-ww", "-o", "pid=", "-o", "args="]).splitlines():
            pid, *argv = line.split()
            yield Process(int(pid), tuple(argv))

    def _ps(self, pid: int, *fields: str) -> str:
        columns = [word for each in fields for word in ("-o", f"{each}=")]
        return self._run([*columns, "-p", str(pid)]).strip()


def processes_of(proc: str) -> Processes:
    """A container may lack /proc; FreeBSD has one without these files."""
    return ProcFiles() if os.path.exists(f"{proc}/self/stat") else PsLines()


PROCESSES: Final = processes_of(PROC)
