"""The journal of one query in one table: which driver has the query, and its last commit.

    <table>/_moldau/<query id>/<number>.json        one file for each change; only the last one counts
        {"epoch": 3, "run": "…", "former_runs": ["…"],
         "commit": {"epoch": 3, "batch": 12, "moves": [["_staging/…", "day=…/….parquet"], …], "removes": ["day=…/…"]},
         "abandoned": []}

The number is the fence. A driver reads the last state, n, decides, and creates n+1. The file system lets only one
driver create it, so one that was suspended after reading n finds n+1 taken. No file is replaced. Old ones are removed,
in the order of their numbers, so a number can be free again: `append` therefore looks afterwards whether n is still
what was read. If it is, nothing after it had been removed, and the number was free for the first time.

The epoch is that of a transactional producer: a driver that takes the query over gets the next one.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from moldau.base.errors import MalformedData
from moldau.spark.lake import disk

JOURNALS = "_moldau"
KEPT = 4
"""So many files stay: enough that a driver which is only slow finds what it has read."""
READ_ATTEMPTS_MAX = 100
SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit that has begun; names are relative to the table's directory.

    The table decides what it means: a Parquet table completes it (the journal *is* the commit); Delta and Iceberg have
    a log of their own, and remove the files of a commit that is not in it. File names are never reused, so both can be
    repeated.
    """

    epoch: int
    batch_id: int
    moves: tuple[tuple[str, str], ...]
    removes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    number: int
    epoch: int
    run_id: str
    """The driver that has the query: one run of it."""
    former_runs: tuple[str, ...] = ()
    """Those that have lost it, the last first."""
    entry: Entry | None = None
    abandoned: tuple[Entry, ...] = ()
    """Commits of former drivers to a table with its own log, which are perhaps not in that log."""


class Journal:
    def __init__(self, table: str, query_id: str) -> None:
        self._directory = os.path.join(table, JOURNALS, query_id)

    def last(self) -> State | None:
        """Return the present state; None if the query has never written to the table."""
        for _ in range(READ_ATTEMPTS_MAX):
            numbers = self._numbers()
            if not numbers:
                return None
            content = disk.content_of(self._file(numbers[-1]))
            if content is not None:  # otherwise others have written several states since the directory was listed
                return self._decoded(numbers[-1], content)
        raise OSError(errno.ESTALE, "the journal changes faster than it can be read", self._directory)

    def append(self, state: State, before: State | None) -> bool:
        """Write the state that follows `before`; False if another driver has written one meanwhile."""
        content = _encoded(state)
        if before is None:
            assert state.number == 1
            disk.ensure_directory(os.path.dirname(self._directory))
            return disk.create_directory_with_file(self._directory, _name(1), content)
        assert state.number == before.number + 1
        if not disk.create_content(self._file(state.number), content):
            return False
        found = disk.content_of(self._file(before.number))
        if found is None or self._decoded(before.number, found) != before:
            return False
        for number in self._numbers():
            if number <= state.number - KEPT:
                disk.remove(self._file(number))
        return True

    def remove(self) -> None:
        """Forget the query, which writes no more."""
        disk.remove_directory(self._directory)

    def _numbers(self) -> list[int]:
        found = (name.removesuffix(SUFFIX) for name in disk.names(self._directory) if name.endswith(SUFFIX))
        return sorted(int(number) for number in found if number.isdecimal())

    def _file(self, number: int) -> str:
        return os.path.join(self._directory, _name(number))

    def _decoded(self, number: int, content: bytes) -> State:
        try:
            fields = json.loads(content)
            commit = fields["commit"]
            return State(
                number,
                int(fields["epoch"]),
                str(fields["run"]),
                tuple(map(str, fields["former_runs"])),
                None if commit is None else _entry(commit),
                tuple(map(_entry, fields["abandoned"])),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedData(f"{self._file(number)} is no journal of a lake table: {error}") from error


def _name(number: int) -> str:
    return f"{number:012d}{SUFFIX}"


def _encoded(state: State) -> bytes:
    fields = {
        "epoch": state.epoch,
        "run": state.run_id,
        "former_runs": state.former_runs,
        "commit": None if state.entry is None else _fields(state.entry),
        "abandoned": [_fields(entry) for entry in state.abandoned],
    }
    return json.dumps(fields).encode()


def _fields(entry: Entry) -> dict[str, Any]:
    fields = asdict(entry)
    return {"batch": fields.pop("batch_id"), **fields}


def _entry(fields: dict[str, Any]) -> Entry:
    moves = tuple((str(staged), str(name)) for staged, name in fields["moves"])
    return Entry(int(fields["epoch"]), int(fields["batch"]), moves, tuple(map(str, fields["removes"])))
