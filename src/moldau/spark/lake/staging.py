"""Files that tasks have written and no reader sees yet, and who may remove them.

    <table>/_staging/<query id>/run-<run id>/<file>.parquet.staged     tasks write here; readers skip names that begin
                                                                       with "_", and *.parquet does not match them
    <table>/_staging/<query id>/epoch-<n>/…                            the same directory, renamed by the driver that
                                                                       commits it

A driver gets its epoch when it takes the query over: a number higher than those of all drivers before it.

A driver that takes a query over removes what others have staged: `sweep_others` removes the directories of lower epochs
and those that have no epoch yet. What a still newer driver commits is safe from it, since that has a higher epoch. A
newer driver may lose files before its rename: so `adopt` checks after the rename that none of its own is missing.
`sweep` removes the directories of the driver itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from moldau.spark.lake import disk
from moldau.spark.lake.journal import Entry
from moldau.spark.lake.tables import BatchTag, DataFile

STAGING = "_staging"
STAGED_SUFFIX = ".staged"
_RUN = "run-"
_EPOCH = "epoch-"


def staged_name(tag: BatchTag, name: str) -> str:
    """Return where a task writes the file that will be called `name`: in one directory for all partitions."""
    return os.path.join(STAGING, tag.query_id, _RUN + tag.run_id, os.path.basename(name) + STAGED_SUFFIX)


class Staging:
    """The staged files of one query; `run_id` is the driver that looks after them."""

    def __init__(self, table: str, query_id: str, run_id: str) -> None:
        self._table = table
        self._folder = os.path.join(STAGING, query_id)
        self._own = os.path.join(self._folder, _RUN + run_id)

    def has(self, files: Sequence[DataFile]) -> bool:
        return all(disk.exists(self._at(file.staged)) for file in files)

    def adopt(self, files: Sequence[DataFile], epoch: int) -> tuple[tuple[str, str], ...] | None:
        """Make the files safe from other drivers; return (staged, final name) of each, or None if one is missing."""
        if not files:
            return ()
        adopted = self._of_epoch(epoch)
        disk.remove_directory(self._at(adopted))  # an earlier attempt of this run, which has failed
        if not disk.move(self._at(self._own), self._at(adopted)):
            return None
        moves = tuple((os.path.join(adopted, os.path.basename(file.staged)), file.name) for file in files)
        if not all(disk.exists(self._at(staged)) for staged, _ in moves):
            return None
        for directory in (adopted, self._folder, STAGING):
            disk.flush_directory(self._at(directory))
        return moves

    def make_directories(self, moves: Sequence[tuple[str, str]]) -> None:
        """Make the directories of the final names, while the commit can still fail. They and the staging directory may
        be new, so the directories above them are flushed."""
        directories = _directories(moves)
        for directory in directories:
            disk.ensure_directory(self._at(directory))
        for parent in _parents(directories):
            disk.flush_directory(self._at(parent))

    def roll_forward(self, entry: Entry) -> None:
        """Complete the entry. A file that is no longer staged was moved by an earlier attempt or by another driver."""
        for name in entry.removes:
            disk.remove(self._at(name))
        for staged, name in entry.moves:
            disk.move(self._at(staged), self._at(name))
        for directory in _directories(entry.moves):
            with suppress(FileNotFoundError):  # its files were removed since, and then the directory
                disk.flush_directory(self._at(directory))

    def take_back(self, entry: Entry) -> None:
        """Remove the entry's files: the staged ones first, so that none is moved behind our back."""
        for staged, name in entry.moves:
            disk.remove(self._at(staged))
            disk.remove(self._at(name))

    def sweep(self, epoch: int | None = None) -> None:
        """Remove this driver's staged files: of replays that were not needed, and of attempts that died.

        A driver runs one batch at a time, so after its commit none of them is needed.
        """
        disk.remove_directory(self._at(self._own))
        if epoch is not None:
            disk.remove_directory(self._at(self._of_epoch(epoch)))
        disk.remove_empty_directory(self._at(self._folder))

    def sweep_others(self, epoch: int) -> None:
        """Remove the staged files of all drivers before this one, which has just got this epoch, and of those that have
        not claimed the query yet: they have no epoch. Leaves names that are none of ours."""
        for name in disk.names(self._at(self._folder)):
            directory = os.path.join(self._folder, name)
            of_epoch = name.removeprefix(_EPOCH) if name.startswith(_EPOCH) else ""
            is_older = of_epoch.isdecimal() and int(of_epoch) < epoch
            if is_older or (name.startswith(_RUN) and directory != self._own):
                disk.remove_directory(self._at(directory))

    def _of_epoch(self, epoch: int) -> str:
        return os.path.join(self._folder, f"{_EPOCH}{epoch}")

    def _at(self, name: str) -> str:
        return os.path.join(self._table, name) if name else self._table


def _directories(moves: Sequence[tuple[str, str]]) -> list[str]:
    """Return the directories of the final names."""
    return sorted({os.path.dirname(name) for _, name in moves})


def _parents(directories: Sequence[str]) -> list[str]:
    """Return all directories above these, and the table's own, which is "" here: that has the staging directory."""
    parents = {""}
    for directory in directories:
        while directory:
            directory = os.path.dirname(directory)
            parents.add(directory)
    return sorted(parents)
