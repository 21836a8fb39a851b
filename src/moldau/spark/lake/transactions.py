"""Commits a micro-batch in one transaction, for tables with a log of their own (Delta, Iceberg).

The log decides what is committed. The journal only lists the files that an unfinished commit has left in the table's
directory, so that the next commit removes them instead of leaving them to a vacuum.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from moldau.spark.lake.journal import Journal
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError

T = TypeVar("T")

ATTEMPTS_MAX = 8
"""After so many conflicts in a row a commit fails: other writers probably write all the time."""
PAUSE_SECONDS = 0.05


class Conflict(Exception):
    """Another writer has changed the table between our read and our commit."""


class Logged(Protocol):
    path: str

    def last_batch(self, query_id: str) -> int | None:
        """Return the highest batch id of this query in the log, or None if the log has none."""

    def transact(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> None:
        """Try once to add the files with the tag. Raises Conflict if another writer was faster."""


def commit(table: Logged, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
    journal = Journal(table.path, tag.query_id)
    _clean_up_unfinished(table, journal, tag.query_id)
    is_new = not has_batch(table, tag)
    if is_new and (files or overwrite):
        journal.roll_forward(journal.begin(tag.batch_id, files))
        retry_conflicts(table.path, lambda: table.transact(files, tag, overwrite), lambda: has_batch(table, tag))
        journal.end()
    journal.sweep()
    return is_new


def has_batch(table: Logged, tag: BatchTag) -> bool:
    """Return whether the table has the batch. >=, because a query commits its batches in the order of their ids."""
    last_batch_id = table.last_batch(tag.query_id)
    return last_batch_id is not None and last_batch_id >= tag.batch_id


def retry_conflicts(path: str, attempt: Callable[[], T], done: Callable[[], bool] = lambda: False) -> T | None:
    """Call `attempt` until it raises no Conflict, and return its result.

    Return None if `done` says that an attempt took effect although it raised Conflict.
    """
    for tries in range(ATTEMPTS_MAX):
        try:
            return attempt()
        except Conflict as conflict:
            last_conflict = conflict
        if done():
            return None
        time.sleep(PAUSE_SECONDS * tries * random.random())
    raise LakeError(
        f"{path}: the commit failed {ATTEMPTS_MAX} times because of other writers: {last_conflict}"
    ) from last_conflict


def _clean_up_unfinished(table: Logged, journal: Journal, query_id: str) -> None:
    """Remove the files of a commit that the journal has begun and the table's log does not have."""
    entry = journal.entry()
    if entry is None:
        return
    last_batch_id = table.last_batch(query_id)
    if last_batch_id is None or last_batch_id < entry.batch_id:
        journal.take_back(entry)
    journal.end()
