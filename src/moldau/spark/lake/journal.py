"""The staging directory of one query in one table, and the journal by which a commit survives a kill at any time.

    <table>/_staging/<query id>/<file>.parquet.staged    files of tasks; readers skip names that begin with "_", and a
                                                         glob for *.parquet does not match them either
    <table>/_moldau/<query id>.json                      the journal: what the last commit moves and removes, as
        {"batch": 12, "moves": [["_staging/…", "day=…/….parquet"], …], "removes": ["day=…/….parquet", …]}

The journal is replaced atomically before the first file moves. The table decides what an old journal means: a Parquet
table rolls it forward (the journal *is* the commit); Delta and Iceberg have their own log and remove the files of an
unfinished commit. File names are never reused, so both can be repeated.
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
        """Return the last commit that has begun, finished or not."""
        content = disk.content_of(self._file)
        if content is None:
            return None
        try:
            fields = json.loads(content)
            moves = tuple((str(staged), str(name)) for staged, name in fields["moves"])
            return Entry(int(fields["batch"]), moves, tuple(map(str, fields["removes"])))
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedData(f"{self._file} is no journal of a lake table: {error}") from error

    def begin(self, batch_id: int, files: Sequence[DataFile], removes: Iterable[str] = ()) -> Entry:
        """Write the entry that commits to moving these files. Directories are created first, while it can still
        fail."""
        entry = Entry(batch_id, tuple((file.staged, file.name) for file in files), tuple(removes))
        for directory in {os.path.dirname(name) for _, name in entry.moves}:
            disk.make_directory(os.path.join(self._table, directory))
        if files:
            disk.flush(self._staging)
        disk.make_directory(os.path.dirname(self._file))
        fields = {"batch": entry.batch_id, "moves": entry.moves, "removes": entry.removes}
        disk.replace_content(self._file, json.dumps(fields).encode())
        return entry

    def roll_forward(self, entry: Entry) -> None:
        """Complete the entry. A file that is no longer staged was moved by an earlier attempt."""
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
        """Remove staged files: of replays that were not needed, and of attempts that died.

        A query runs one batch at a time, so after its commit nothing in its directory is needed.
        """
        disk.remove_directory(self._staging)

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove staged files, except those of a commit that has begun."""
        entry = self.entry()
        committed = {staged for staged, _ in entry.moves} if entry else set()
        for file in files:
            if file.staged not in committed:
                disk.remove(self._at(file.staged))

    def _at(self, name: str) -> str:
        return os.path.join(self._table, name)


def staged_name(query_id: str, name: str) -> str:
    """Return where a task writes the file that will be called `name`: in one directory for all partitions."""
    return os.path.join(STAGING, query_id, os.path.basename(name) + STAGED_SUFFIX)
