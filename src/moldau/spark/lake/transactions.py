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
"""Conflicting writers retry; eight conflicts in a row are not an accident."""
PAUSE_SECONDS = 0.05


class Conflict(Exception):
    """Another writer has changed the table between our read and our commit."""


class Logged(Protocol):
    path: str

    def last_batch(self, query_id: str) -> int | None:
        """The highest batch id of this query in the log."""

    def transact(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> None:
        """Try once to add the files with the tag; raises Conflict."""


def commit(table: Logged, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
    journal = Journal(table.path, tag.query_id)
    _settle(table, journal, tag.query_id)
    is_new = not holds(table, tag)
    if is_new and (files or overwrite):
        journal.roll_forward(journal.begin(tag.batch_id, files))
        retry_conflicts(table.path, lambda: table.transact(files, tag, overwrite), lambda: holds(table, tag))
        journal.end()
    journal.sweep()
    return is_new


def holds(table: Logged, tag: BatchTag) -> bool:
    last = table.last_batch(tag.query_id)
    return last is not None and last >= tag.batch_id


def retry_conflicts(path: str, attempt: Callable[[], T], done: Callable[[], bool] = lambda: False) -> T | None:
    """Retry until there is no conflict, or `done` says that a failed attempt took effect."""
    for tries in range(ATTEMPTS_MAX):
        try:
            return attempt()
        except Conflict as conflict:
            last = conflict
        if done():
            return None
        time.sleep(PAUSE_SECONDS * tries * random.random())
    raise LakeError(f"{path}: other writers were in the way {ATTEMPTS_MAX} times running: {last}") from last


def _settle(table: Logged, journal: Journal, query_id: str) -> None:
    """Clean up after an unfinished commit."""
    entry = journal.entry()
    if entry is None:
        return
    last = table.last_batch(query_id)
    if last is None or last < entry.batch_id:
        journal.take_back(entry)
    journal.end()
