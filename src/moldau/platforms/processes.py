"""Other processes of this machine: their start time, state, memory and command line.

On Linux they are read from /proc, elsewhere from `ps`, with the options of POSIX and one `-o` per field: POSIX takes
everything after `=` as the heading, so macOS' `ps` reads `stat=,lstart=` as one column. Dates have a fixed language and
time zone, since they are compared with those that another terminal has saved.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

RunPs = Callable[[Sequence[str]], str]
PROC: Final = "/proc"


class NoProcessList(OSError):
    """Other processes cannot be seen, as in some containers."""

    def __init__(self) -> None:
        super().__init__("this system has neither /proc nor `ps` to see its processes; mount /proc or install procps")


@dataclass(frozen=True, slots=True)
class Process:
    """`cwd` and `environ` have their defaults if the system does not show them, as for processes of other users."""

    pid: int
    argv: tuple[str, ...]
    cwd: str = "."
    environ: Mapping[str, str] = field(default_factory=dict)


class Processes(Protocol):
    def start_time(self, pid: int) -> str | None:
        """Return the start time in the format of the system; None if there is no such process, or only a zombie."""
        ...

    def is_paused(self, pid: int) -> bool: ...

    def memory_bytes(self, pid: int) -> int | None:
        """Return the resident memory of a process."""
        ...

    def all(self) -> Iterator[Process]:
        """Yield every process that this user can see."""
        ...


class ProcFiles:
    """Reads /proc of Linux."""

    def start_time(self, pid: int) -> str | None:
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
        """Return the fields behind the program's name; the name itself may contain spaces and brackets."""
        try:
            with open(f"{PROC}/{pid}/stat", errors="replace") as file:
                return file.read().rpartition(")")[2].split()
        except OSError:
            return None

    def _process(self, pid: int) -> Process | None:
        try:
            with open(f"{PROC}/{pid}/cmdline", "rb") as file:
                argv = tuple(os.fsdecode(word) for word in file.read().split(b"\0")[:-1])
        except OSError:
            return None  # it has ended meanwhile
        try:
            with open(f"{PROC}/{pid}/environ", "rb") as file:
                pairs = (os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair)
                environ = {key: value for key, _, value in pairs}
            return Process(pid, argv, os.readlink(f"{PROC}/{pid}/cwd"), environ)
        except OSError:
            return Process(pid, argv)  # another user's process: only its command line is public


def run_ps(options: Sequence[str]) -> str:
    """Return the output of `ps`: empty if the process is gone. The exit status is ignored."""
    environ = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    try:
        return subprocess.run(["ps", *options], capture_output=True, text=True, env=environ, errors="replace").stdout
    except FileNotFoundError as error:
        raise NoProcessList from error


class PsLines:
    """Reads the output of `ps`. Command lines are split at spaces, so a path with a space becomes two words."""

    def __init__(self, run: RunPs = run_ps) -> None:
        self._run = run

    def start_time(self, pid: int) -> str | None:
        state, _, start_time = self._ps(pid, "stat", "lstart").partition(" ")
        return None if not state or state.startswith("Z") else start_time.strip()

    def is_paused(self, pid: int) -> bool:
        return self._ps(pid, "stat").startswith("T")

    def memory_bytes(self, pid: int) -> int | None:
        kilobytes = self._ps(pid, "rss")
        return int(kilobytes) * 1024 if kilobytes.isdecimal() else None

    def all(self) -> Iterator[Process]:
        # Without -ww, lines are cut at the width of the terminal.
        for line in self._run(["-A", "-ww", "-o", "pid=", "-o", "args="]).splitlines():
            pid, *argv = line.split()
            yield Process(int(pid), tuple(argv))

    def _ps(self, pid: int, *fields: str) -> str:
        columns = [word for each in fields for word in ("-o", f"{each}=")]
        return self._run([*columns, "-p", str(pid)]).strip()


def processes_of(proc: str) -> Processes:
    """Choose by the presence of a file: a container may lack /proc, and FreeBSD's /proc has no self/stat."""
    return ProcFiles() if os.path.exists(f"{proc}/self/stat") else PsLines()


PROCESSES: Final = processes_of(PROC)
