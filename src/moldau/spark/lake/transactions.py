"""One micro-batch, one transaction, for tables that keep a log of their own (Delta, Iceberg).

The log decides what is committed; the journal only remembers which files an unfinished commit has left in the
table's directory, so that the next one removes them instead of leaving them to a vacuum.
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
"""Writers of one table that meet try again; what meets eight times running is not an accident."""
PAUSE_SECONDS = 0.05


class Conflict(Exception):
    """Another writer has changed the table between our look and our commit."""


class Logged(Protocol):
    path: str

    def last_batch(self, query_id: str) -> int | None:
        """The highest batch of this query that the log holds."""

    def transact(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> None:
        """One try to add the files, tagged; raises Conflict."""


def commit(table: Logged, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
    journal = Journal(table.path, tag.query_id)
    _settle(table, journal, tag.query_id)
    wanted = not holds(table, tag)
    if wanted and (files or overwrite):
        journal.roll_forward(journal.begin(tag.batch_id, files))
        unopposed(table.path, lambda: table.transact(files, tag, overwrite), lambda: holds(table, tag))
        journal.end()
    journal.sweep()
    return wanted


def holds(table: Logged, tag: BatchTag) -> bool:
    last = table.last_batch(tag.query_id)
    return last is not None and last >= tag.batch_id


def unopposed(path: str, attempt: Callable[[], T], done: Callable[[], bool] = lambda: False) -> T | None:
    """Try until no other writer is in the way, or what a failed try was for turns out to be done."""
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
    """Clean up after a commit that did not get to its end."""
    entry = journal.entry()
    if entry is None:
        return
    last = table.last_batch(query_id)
    if last is None or last < entry.batch_id:
        journal.take_back(entry)
    journal.end()
