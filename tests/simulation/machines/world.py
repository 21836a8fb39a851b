"""What every simulation is built on: virtual time, a trace with its checksum, violations, and machines on a network."""

from __future__ import annotations

import traceback
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from machines.process import Process, ProcessTimers
from moldau.base.ports import RunInThread
from moldau.server.router import Router
from moldau.testing.clock import FakeTimers
from moldau.views.jobs import EvaluatesViews

if TYPE_CHECKING:
    from machines.connection import AnswersFrames
    from machines.machine import Machine
    from machines.network import Network

TAIL = 80


class Violation(AssertionError):
    """Something happened that must not happen."""


class World:
    kind = ""
    """The name of this simulation on the command line."""
    answers_early = True
    """Whether clients and followers reach a node while it starts. A real one listens only when it serves."""
    step_ms = 50
    """The time between two checks."""
    network: Network

    def __init__(self, seed: int, size_name: str, tail: int = TAIL) -> None:
        self.seed = seed
        self._size_name = size_name
        self.timers = FakeTimers()
        self.clock = self.timers.clock
        self.tail: deque[str] = deque(maxlen=tail or None)
        self.digest = 0
        self.violation: str | None = None
        self._events_before_violation: list[str] = []

    # --- time and trace -------------------------------------------------------------------------------------------

    @property
    def elapsed_ms(self) -> int:
        return self.clock.monotonic_ms()

    def trace(self, text: str) -> None:
        line = f"{self.elapsed_ms:>8} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.tail.append(line)

    def violated(self, what: str) -> None:
        """Note a violation; it is raised at the end of the step, where no code under test can catch it."""
        if self.violation is None:
            self.violation = what
            self.trace(f"VIOLATION {what}")
            self._events_before_violation = list(self.tail)

    def failed_inside(self, failure: BaseException) -> None:
        """Note an unexpected exception on a node as a violation."""
        self.violated("".join(traceback.format_exception(failure)))

    def fail(self) -> None:
        if self.violation is not None:
            lines = "\n".join(self._events_before_violation)
            raise Violation(f"{self.violation}\n--- the last events before it\n{lines}")

    def how_to_replay(self) -> str:
        return (
            f"replay with\npython tests/simulation/simulate.py --what {self.kind} "
            f"--seed {self.seed} --size {self._size_name} --trace"
        )

    # --- steps ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Called after every step."""

    def _let_pass(self, duration_ms: int) -> None:
        end_ms = self.elapsed_ms + duration_ms
        while self.elapsed_ms < end_ms:
            self.timers.advance(self.step_ms)
            self.check()
            self.fail()

    def _until(self, limit_ms: int, why_not: Callable[[], str], otherwise: str) -> None:
        """Wait until `why_not` returns "", or fail with the reason that it returns."""
        end_ms = self.elapsed_ms + limit_ms
        while why := why_not():
            if self.elapsed_ms >= end_ms:
                self.violated(f"{otherwise} within {limit_ms} ms: {why}")
                self.fail()
            self._let_pass(2 * self.step_ms)

    # --- what a node gets -----------------------------------------------------------------------------------------

    def timers_of(self, machine: Machine, process: Process) -> ProcessTimers:
        return ProcessTimers(self.timers, process, machine.clock)

    def views_of(self, run_in_thread: RunInThread) -> EvaluatesViews | None:
        """Return what evaluates the views of a node; None for the node's own."""
        return None

    def router_of(self, router: Router) -> AnswersFrames:
        """Return what answers the clients of a node."""
        return router

    # --- what happens on machines and the network -------------------------------------------------------------------

    def node_serves(self, machine: Machine) -> None:
        """Called when a node begins to serve."""

    def process_ends(self, machine: Machine) -> None:
        """Called when a process is killed or loses its power, with the node as it was."""

    def node_leads_quorum(self, node_id: int, epoch: int) -> None:
        """Called when a node leads the quorum."""

    def cleaning_begins(self, machine: Machine) -> None:
        """Called before records may be removed."""

    def disk_stops_node(self, machine: Machine) -> None:
        """Called when a node stops because of its disk."""

    def power_fails(self, machine: Machine) -> None:
        """Called at the file operation that was chosen for a loss of power."""

    def message_is_slow(self, source: str, target: str) -> None:
        """Called when a message will be slow."""
