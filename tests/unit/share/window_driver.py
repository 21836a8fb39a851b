"""A share group in front of one partition: its window, the log as batches, and a clock.

Results are texts, so that a test reads like a conversation: `0-4x1` are the offsets 0 to 4, delivered for the first
time.
"""

from __future__ import annotations

import pytest

from moldau.base.errors import KafkaError
from moldau.share.limits import ShareLimits
from moldau.share.runs import Change, RecordState, Run
from moldau.share.window import ACCEPT, Acknowledged, Acquired, RecordBatch, Wanted, Window, Written

LOCK_MS = 1_000
LIMITS = ShareLimits(record_lock_duration_ms=LOCK_MS, delivery_count_limit=5, partition_max_record_locks=100)
_MANY = 1_000


class WindowDriver:
    def __init__(self, *log: str, start: int = 0, limits: ShareLimits = LIMITS) -> None:
        self.window = Window(start, limits)
        self.log = log_of(*log)
        self.now_ms = 0

    # --- a fetch ------------------------------------------------------------------------------------------------

    def fetch(
        self,
        member: str = "a",
        max_records: int = _MANY,
        batch_size: int = _MANY,
        is_exact: bool = False,
        up_to: int | None = None,
    ) -> str:
        """Read the log from the next fetch offset on, no further than the batch with `up_to`, and acquire."""
        offset = self.window.next_fetch_offset
        batches = [each for each in self.log if each.last_offset >= offset]
        if up_to is not None:
            batches = [each for each in batches if each.base_offset <= up_to]
        wanted = Wanted(member, max_records, batch_size, is_exact)
        return text_of_acquired(self.window.acquire(wanted, offset, batches, self.now_ms))

    def fetch_exactly(self, count: int, member: str = "a") -> str:
        return self.fetch(member, count, is_exact=True)

    # --- acknowledgements ---------------------------------------------------------------------------------------

    def begin(self, *said: tuple[int, int, int | list[int]], member: str = "a") -> tuple[Change, str]:
        """Acknowledge first..last with a type or a list of types. Return the change, and what is to be written."""
        each = [Acknowledged(first, last, [types] if isinstance(types, int) else types) for first, last, types in said]
        change, written = self.window.acknowledge(member, each, self.now_ms)
        return change, text_of_written(written)

    def complete(self, change: Change, *, is_written: bool = True) -> None:
        self.window.complete(change, is_written=is_written, now_ms=self.now_ms)

    def acknowledge(self, *said: tuple[int, int, int | list[int]], member: str = "a") -> str:
        """Acknowledge, and complete it as written."""
        change, written = self.begin(*said, member=member)
        self.complete(change)
        return written

    def release(self, member: str = "a") -> str:
        """Release what a member holds, and complete it as written."""
        change, written = self.window.release(member)
        self.complete(change)
        return text_of_written(written)

    def error(self, *said: tuple[int, int, int | list[int]], member: str = "a") -> str:
        """Return the error of an acknowledgement, which changes nothing."""
        before = self.state()
        with pytest.raises(KafkaError) as raised:
            self.begin(*said, member=member)
        assert self.state() == before
        return f"{raised.value.code.name}: {raised.value.message}"

    def deliver(self, times: int, first: int, last: int) -> None:
        """Deliver these records so often, releasing them each time. They must be the next ones."""
        for _ in range(times):
            self.fetch(up_to=last)
            self.acknowledge((first, last, 2))

    def accept_all(self) -> None:
        """Accept what member `a` holds."""
        held = [run for run in self.window._runs() if run.state is RecordState.ACQUIRED and run.member_id == "a"]
        for run in held:
            self.acknowledge((run.first, run.last, ACCEPT))

    # --- time and state -----------------------------------------------------------------------------------------

    def wait(self, by_ms: int) -> str:
        self.now_ms += by_ms
        return text_of_written(self.window.end_locks(self.now_ms))

    def state(self) -> str:
        """Return all of the window, neighbours joined that do not differ for a reader: `0-4 acquired x1 a`."""
        parts: list[tuple[int, int, str]] = []
        for run in self.window._runs():
            text = _text_of_run(run)
            if parts and parts[-1][2] == text:
                parts[-1] = (parts[-1][0], run.last, text)
            else:
                parts.append((run.first, run.last, text))
        return ", ".join(f"{_range(first, last)} {text}" for first, last, text in parts)

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The start, the next fetch offset and the end."""
        return self.window.start_offset, self.window.next_fetch_offset, self.window.end_offset


def log_of(*batches: str) -> list[RecordBatch]:
    """Return batches of the log from texts: `0-4` or `0-4 aborted`."""
    found = []
    for text in batches:
        offsets, _, mark = text.partition(" ")
        first, _, last = offsets.partition("-")
        found.append(RecordBatch(int(first), int(last or first), is_aborted=mark == "aborted"))
    return found


def text_of_acquired(acquired: list[Acquired]) -> str:
    return " ".join(f"{_range(each.first_offset, each.last_offset)}x{each.delivery_count}" for each in acquired)


def text_of_written(written: list[Written]) -> str:
    return ", ".join(
        f"{_range(each.first_offset, each.last_offset)} {each.state.name.lower()} x{each.delivery_count}"
        for each in written
    )


def _text_of_run(run: Run) -> str:
    change = "" if run.change is None else " changing"
    member = f" {run.member_id}" if run.member_id else ""
    return f"{run.state.name.lower()} x{run.delivery_count}{member}{change}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
