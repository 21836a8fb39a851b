"""The staging folder of one query in one table, and the journal by which a commit survives a kill at any moment.

    <table>/_staging/<query id>/<file>.parquet.staged    files of tasks; readers skip names that begin with "_", and a
                                                         glob for *.parquet does not match them either
    <table>/_moldau/<query id>.json                      the journal: what the last commit moves and removes, as
        {"batch": 12, "moves": [["_staging/…", "day=…/….parquet"], …], "removes": ["day=…/….parquet", …]}

The journal is replaced atomically before the first file moves. What a journal that is found later means is the
table's affair: a Parquet table rolls it forward (the journal *is* the commit), Delta and Iceberg have a log of their
own and take the files of an unfinished commit back. File names are never used twice, so both may be done again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moldau.base.errors import MalformedData
from moldau.spark.lake import disk
from moldau.spark.lake.tables import DataFile

STAGING = "_staging"
JOURNALS = "_moldau"
STAGED_SUFFIX = ".staged"


@dataclass(frozen=True, slots=True)
class Entry:
    batch_id: int
    moves: tuple[tuple[str, str], ...]
    removes: tuple[str, ...] = ()


class Journal:
    def __init__(self, table: str, query_id: str) -> None:
        self._table = table
        self._file = os.path.join(table, JOURNALS, f"{query_id}.json")
        self._staging = os.path.join(table, STAGING, query_id)

    def entry(self) -> Entry | None:
        """The last commit that was begun, finished or not."""
        content = disk.content_of(self._file)
        if content is None:
            return None
        try:
            found = json.loads(content)
            moves = tuple((str(staged), str(name)) for staged, name in found["moves"])
            return Entry(int(found["batch"]), moves, tuple(map(str, found["removes"])))
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedData(f"{self._file} is no journal of a lake table: {error}") from error

    def begin(self, batch_id: int, files: Sequence[DataFile], removes: Iterable[str] = ()) -> Entry:
        """Promise to move these files in. Directories are made first: with no room for one, nothing is promised."""
        entry = Entry(batch_id, tuple((file.staged, file.name) for file in files), tuple(removes))
        for directory in {os.path.dirname(name) for _, name in entry.moves}:
            disk.make_directory(os.path.join(self._table, directory))
        if files:
            disk.flush(self._staging)
        disk.make_directory(os.path.dirname(self._file))
        told = {"batch": entry.batch_id, "moves": entry.moves, "removes": entry.removes}
        disk.replace_content(self._file, json.dumps(told).encode())
        return entry

    def roll_forward(self, entry: Entry) -> None:
        """Do what is still to do. A file that is not staged any more has been moved by an earlier attempt."""
        for name in entry.removes:
            disk.remove(self._at(name))
        for staged, name in entry.moves:
            if os.path.exists(self._at(staged)):
                disk.move(self._at(staged), self._at(name))

    def take_back(self, entry: Entry) -> None:
        for staged, name in entry.moves:
            disk.remove(self._at(staged))
            disk.remove(self._at(name))

    def end(self) -> None:
        disk.remove(self._file)

    def sweep(self) -> None:
        """Drop what is still staged: replays that were not needed, and files of attempts that died.

        One query runs one batch at a time, so after its commit nothing in its folder is wanted by anybody.
        """
        disk.remove_directory(self._staging)

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove staged files, except those that a begun commit has promised to move in."""
        entry = self.entry()
        promised = {staged for staged, _ in entry.moves} if entry else set()
        for file in files:
            if file.staged not in promised:
                disk.remove(self._at(file.staged))

    def _at(self, name: str) -> str:
        return os.path.join(self._table, name)


def staged_name(query_id: str, name: str) -> str:
    """Where a task writes the file that will be called `name`; flat, whatever the partition is."""
    return os.path.join(STAGING, query_id, os.path.basename(name) + STAGED_SUFFIX)
