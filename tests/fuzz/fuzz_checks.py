"""The rules for every case: only declared errors, bounded work and memory, and log lines without a client's bytes."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from harness.operations import operations_of

PLANTED = "PlantedZq"
"""Clients send this text; it must not be in a log line or in an error about a file with passwords."""
LINE_LENGTH_MAX = 1000
MAY_NAME = ("moldau.audit", "moldau.metadata")
"""Loggers whose lines may have names from requests: refused ones, escaped, and topics and brokers that were created."""
OPERATIONS_EVERY, MEMORY_EVERY = 499, 503
"""Every 499th case runs with its lines counted, every 503rd with its memory traced: both are slow."""


class Violation(AssertionError):
    """A case broke one of the rules."""


class Limits:
    """The maximum cost of one case: a constant, and a factor for each byte of its input."""

    def __init__(self, operations: int = 20_000, per_byte: int = 60, memory: int = 400_000, memory_per_byte: int = 200):
        self._operations, self._per_byte = operations, per_byte
        self._memory, self._memory_per_byte = memory, memory_per_byte

    def check_operations(self, count: int, size: int) -> None:
        if count > (most := self._operations + self._per_byte * size):
            raise Violation(f"{count} lines of Python ran for {size} bytes; the limit is {most}")

    def check_memory(self, peak: int, size: int) -> None:
        if peak > (most := self._memory + self._memory_per_byte * size):
            raise Violation(f"{peak} bytes of memory for {size} bytes of input; the limit is {most}")


class Target(Protocol):
    """Something that is fuzzed. A case is a function of the numbers from its generator and of the cases before it in
    its block: a block starts from a fresh state."""

    name: str
    block_cases: int
    limits: Limits

    def begin(self) -> None:
        """Start a block."""

    def make(self, rng: Random) -> Any:
        """Return the input of a case."""

    def size_of(self, made: Any) -> int: ...

    def run(self, made: Any) -> None:
        """Run the case. Raise Violation, or do not catch the unexpected exception."""

    def end(self) -> None:
        """End a block."""


def check_line(line: str, *, may_name: bool = False) -> None:
    """Check a line for the log. With `may_name` it may contain names from requests, as the audit log does."""
    if not line.isascii() or not line.isprintable():
        raise Violation(f"a log line is not plain text: {line[:300]!r}")
    if len(line) > LINE_LENGTH_MAX:
        raise Violation(f"a log line of {len(line)} characters: {line[:300]} … {line[-300:]}")
    if not may_name and PLANTED in line:
        raise Violation(f"a log line contains what the client sent: {line}")


class LogLines(logging.Handler):
    """Collects the lines that the code under test logs, and checks them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record)

    def check(self) -> None:
        if self._found:
            found, self._found = self._found, []
            for record in found:
                if record.exc_info:
                    raise Violation(f"logged with a traceback: {record.getMessage()}") from record.exc_info[1]
                check_line(record.getMessage(), may_name=record.name in MAY_NAME)

    def __enter__(self) -> LogLines:
        logger = logging.getLogger("moldau")
        self._before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("moldau")
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]


def run_case(target: Target, rng: Random, number: int) -> None:
    made = target.make(rng)
    if number % OPERATIONS_EVERY == OPERATIONS_EVERY - 1:
        target.limits.check_operations(operations_of(lambda: target.run(made)), target.size_of(made))
    elif number % MEMORY_EVERY == MEMORY_EVERY - 1:
        target.limits.check_memory(memory_of(lambda: target.run(made)), target.size_of(made))
    else:
        target.run(made)


def memory_of(action: Callable[[], object]) -> int:
    gc.disable()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
