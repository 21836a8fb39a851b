"""Commits a micro-batch in one transaction, for tables with a log of their own (Delta, Iceberg).

The log decides what is committed. It has the last batch of each query and the epoch of the driver that wrote it, and
changes both together with the rows, by its own compare-and-swap: a batch that any driver has committed cannot be
committed again. The journal says which driver has the query, and which files a commit has put into the table's
directory. Files of a commit of another driver are removed when it can no longer succeed, and not before: when the log
has its batch from somebody else.

    claim          in the journal: this driver has the query
    begin          in the journal: the entry of this commit, with the names of its files
    roll_forward   the files get these names; no reader sees them yet, because the log does not name them
    attempt        the transaction in the log, repeated after a Conflict
    take_back      the files of commits that did not succeed and no longer can are removed
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from moldau.spark.lake.journal import Entry, State
from moldau.spark.lake.ownership import Ownership
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError

T = TypeVar("T")

ATTEMPTS_MAX = 8
"""After so many conflicts in a row a commit fails: other writers probably write all the time."""
PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a query in a table's log, and the epoch of the driver that committed it."""

    batch_id: int
    epoch: int


class Conflict(Exception):
    """Another writer has changed the table between our read and our commit."""


class Repeated(Exception):
    """The table's log has the batch already."""

    def __init__(self, last: LastBatch) -> None:
        super().__init__(last)
        self.last = last


Attempt = Callable[[int], LastBatch | None]
"""Tries once to commit a batch with this epoch; returns the last batch before it. Raises Conflict or Repeated."""


class Logged(Protocol):
    path: str

    def last_batch(self, query_id: str) -> LastBatch | None:
        """Return the last batch of this query in the log, or None if the log has none."""


def is_new(table: Logged, tag: BatchTag) -> bool:
    """Return whether the table has not got the batch, for a batch without rows; nothing is committed."""
    ownership = Ownership(table.path, tag)
    ownership.end(ownership.look())
    last = None if tag.once else table.last_batch(tag.query_id)
    return last is None or last.batch_id < tag.batch_id


def commit(table: Logged, files: Sequence[DataFile], tag: BatchTag, attempt: Attempt) -> bool:
    """Commit the batch with `attempt` unless the table has it; return whether it was this driver that did."""
    ownership = Ownership(table.path, tag)
    state, last = _acquired(table, ownership, files, tag)
    if last is not None and last.batch_id >= tag.batch_id:
        ownership.end(state)
        return False
    assert state is not None
    with ownership.fencing_errors():
        abandoned = tuple(_unsettled(ownership, state, last))
        entry = ownership.begin(state, files, abandoned=abandoned)
        ownership.staging.roll_forward(entry)
        wrote = True
        try:
            before = retry_conflicts(table.path, lambda: _attempt_owned(ownership, attempt, state.epoch))
        except Repeated as repeated:
            before = repeated.last
            wrote = before == LastBatch(tag.batch_id, state.epoch)  # an attempt took effect although it raised
            abandoned = (*abandoned, entry)
            if not wrote:
                ownership.look()
    for other in abandoned:
        if _is_impossible(other, before, tag.batch_id):
            ownership.staging.take_back(other)
    ownership.end(state)
    return wrote


def _acquired(
    table: Logged, ownership: Ownership, files: Sequence[DataFile], tag: BatchTag
) -> tuple[State | None, LastBatch | None]:
    """Make this driver the query's, unless the table has the batch."""
    while True:
        state = ownership.look()
        last = None if tag.once else table.last_batch(tag.query_id)
        if ownership.is_owner(state) or (last is not None and last.batch_id >= tag.batch_id):
            return state, last
        abandoned = () if state is None else (*state.abandoned, *filter(None, [state.entry]))
        epoch_min = 1 if last is None else last.epoch + 1  # the journal may have been deleted
        claimed = ownership.claim(state, files, abandoned, epoch_min)
        if claimed is not None:
            return claimed, last


def _unsettled(ownership: Ownership, state: State, last: LastBatch | None) -> Iterator[Entry]:
    """Yield the commits of former drivers that can still succeed. Remove the files of those that cannot."""
    for entry in state.abandoned:
        if last is None or last.batch_id < entry.batch_id:
            yield entry
        elif _is_impossible(entry, last):
            ownership.staging.take_back(entry)
    own = state.entry
    if own is not None and own.epoch == state.epoch and (last is None or last.batch_id < own.batch_id):
        ownership.staging.take_back(own)  # an attempt of this driver, which has failed


def _is_impossible(entry: Entry, before: LastBatch | None, committed_id: int = -1) -> bool:
    """Return whether a commit has not succeeded and never will, if the log had the batch `before` and then
    `committed_id` of the same query."""
    if before is None or before.batch_id < entry.batch_id:
        return entry.batch_id <= committed_id
    return before.batch_id == entry.batch_id and before.epoch != entry.epoch


def _attempt_owned(ownership: Ownership, attempt: Attempt, epoch: int) -> LastBatch | None:
    ownership.look()
    return attempt(epoch)


def check_new(last: LastBatch | None, tag: BatchTag) -> None:
    """Raise Repeated if the table has the batch. >=, because a query commits its batches in the order of their ids."""
    if last is not None and last.batch_id >= tag.batch_id:
        raise Repeated(last)


def retry_conflicts(path: str, attempt: Callable[[], T]) -> T:
    """Call `attempt` until it raises no Conflict, and return its result."""
    for tries in range(ATTEMPTS_MAX):
        try:
            return attempt()
        except Conflict as conflict:
            last_conflict = conflict
        time.sleep(PAUSE_SECONDS * tries * random.random())
    raise LakeError(
        f"{path}: the commit failed {ATTEMPTS_MAX} times because of other writers: {last_conflict}"
    ) from last_conflict
