"""The work of evaluating a view: what a broker gives to a worker, and what comes back. A broker imports only this: what
evaluates (`evaluation.py`) loads numpy, Arrow and DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.base.promise import Promise
from moldau.log.reading import Slice

if TYPE_CHECKING:
    from moldau.views.definition import ViewDefinition
    from moldau.views.field_ranges import FieldKey, Value


class Evaluated(NamedTuple):
    """What a view shows of a run of batches."""

    first_offset: int
    next_offset: int
    """The offset behind the run."""
    batches: bytes
    """They reach the last offset of the run: a marker stands there if no batch does. So there is at least one."""
    positions: tuple[int, ...]
    """Where each of these batches begins."""
    last_offsets: tuple[int, ...]
    """The last offset of each."""
    seen: int
    """Records of the source."""
    shown: int
    unreadable: int
    holds_batches: bool
    """Whether `batches` is more than a marker: records, or the source's own control batches."""
    has_controls: bool = False
    ranges: tuple[tuple[FieldKey, tuple[Value, Value] | None], ...] = ()
    """What the fields of its condition hold in this run."""


class Matching(NamedTuple):
    """Which records of a run of batches a view would show."""

    offsets: bytes
    """As 8-byte integers of this machine, ascending."""


class ViewFailed(NamedTuple):
    """Why a run could not be evaluated, in one sentence."""

    why: str
    is_retriable: bool = False
    """Neither the view nor a record is to blame: a file was replaced meanwhile, or a worker was killed."""
    is_divisible: bool = False
    """Fewer records may be evaluated: these took too much time or memory, show too many bytes, or one is wrong."""


class EvaluatesViews(Protocol):
    def evaluate(
        self, view: str, definition: ViewDefinition, records: Slice, partition: int
    ) -> Promise[Evaluated | ViewFailed]: ...

    def withdraw(self, view: str, done: Promise[Evaluated | ViewFailed]) -> None:
        """Nobody waits for this work any more: do not begin it. Its promise may never be completed."""
        ...

    def close(self) -> None:
        """Stop everything; no more work will come."""
        ...
