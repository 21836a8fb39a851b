"""The replication slots of a pipeline: watched while it runs, dropped when no checkpoint needs them any more.

A database keeps its log for a slot until the slot's query has read it. A run that is stopped, or a query that is
behind, fills the database's disk, so the user is told: during and at the end of a run, and by `moldau pipeline status`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from moldau.base.errors import StorageFault
from moldau.databases.changes.errors import ChangesError
from moldau.databases.changes.postgresql import SlotState, check_server, connect, read_table, slot_state
from moldau.databases.changes.slot_files import slots_of
from moldau.databases.changes.stream import drop_orphans
from moldau.pipelines.database_changes import (
    DATABASES,
    address_of,
    change_options,
    database_sources,
    files_of,
    table_of,
)
from moldau.pipelines.problems import Problem
from moldau.pipelines.running.display import bytes_text
from moldau.pipelines.running.ends import SlotLag
from moldau.pipelines.spec import DatabaseSource, Pipeline

LOOK_EVERY_S: Final = 5.0
STATUS_TIMEOUT_S: Final = 3
MUCH_BYTES: Final = 1 << 30
"""So much retained log is worth a warning; the next is at twice as much."""
LITTLE_LEFT_BYTES: Final = 1 << 30
WAITING_TEXT: Final = (
    "database {place} keeps its log for slot {slot} until the pipeline runs again, {kept} now; if it will not:"
    " SELECT pg_drop_replication_slot('{slot}')"
)


def drop_unused_slots(pipeline: Pipeline, state: Path) -> list[str]:
    """Drop the slots that no checkpoint needs, and return a line for each, also for a database that does not answer."""
    lines = []
    for source in _logged(pipeline):
        options = change_options(pipeline, source, state=state)
        try:
            lines += [f"dropped replication slot {slot}, which no checkpoint needs" for slot in drop_orphans(options)]
        except (ChangesError, ConnectionError, StorageFault) as error:
            lines.append(f"source {source.name}: replication slots that no checkpoint needs stay: {error}")
    return [*lines, *_removed_sources(pipeline, state)]


def _removed_sources(pipeline: Pipeline, state: Path) -> Iterator[str]:
    """Yield a line for each slot of a source that is no longer in the file: nobody knows its database any more."""
    sources = {source.name for source in _logged(pipeline)}
    root = state / DATABASES
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        for files in slots_of(folder) if folder.name not in sources else ():
            yield (
                f"source {folder.name} is no longer in the file, but its database still keeps its log for it: drop the"
                f" slot there (SELECT pg_drop_replication_slot('{files.slot}')), then remove {files.path}"
            )


def _logged(pipeline: Pipeline) -> Iterator[DatabaseSource]:
    """Yield the sources whose databases keep a log for them."""
    return (source for source in database_sources(pipeline) if source.growing is None and source.staged is None)


def why_unreadable(pipeline: Pipeline, source: DatabaseSource) -> list[Problem]:
    """Return a warning if the changes of the table cannot be read. Raises ConnectionError if the database does not
    answer."""
    address = address_of(source)
    try:
        with closing(connect(address, "moldau validate")) as connection:
            check_server(connection, address)
            read_table(connection, address, *table_of(source))
    except ChangesError as error:
        place = pipeline.place_of(f"sources.{source.name}.database")
        return [Problem(f"source '{source.name}': {error}", place, None, "warning")]
    return []


class WatchedSlot(NamedTuple):
    """A slot, the place of its database, and the source that it is for."""

    place: str
    state: SlotState
    source: str


def slot_states(pipeline: Pipeline, state: Path) -> dict[str, WatchedSlot]:
    """Return the slots of the pipeline by name, as far as the databases answer."""
    found: dict[str, WatchedSlot] = {}
    for source in _logged(pipeline):
        address, slots = address_of(source), slots_of(files_of(source, state))
        if not slots:
            continue
        try:
            with closing(connect(address, "moldau status", STATUS_TIMEOUT_S)) as connection:
                for files in slots:
                    if (one := slot_state(connection, address, files.slot)) is not None:
                        found[files.slot] = WatchedSlot(address.shown, one, source.name)
        except (ChangesError, ConnectionError):
            continue  # the query itself says that it cannot connect
    return found


def waiting_lines(states: Mapping[str, WatchedSlot]) -> list[str]:
    """Return a line for each slot for which the database keeps its log while the pipeline does not run."""
    return [
        WAITING_TEXT.format(place=place, slot=slot, kept=bytes_text(one.retained_bytes))
        for slot, (place, one, _) in states.items()
    ]


def lags_of(states: Mapping[str, WatchedSlot]) -> dict[str, SlotLag]:
    return {slot: SlotLag(watched.source, watched.state.behind_bytes) for slot, watched in states.items()}


def warnings_of(states: Mapping[str, WatchedSlot], told: dict[str, SlotState]) -> Iterator[str]:
    """Yield a warning for each slot that endangers the database or itself. `told` has the state of each slot that was
    last warned of."""
    for slot, (place, one, _) in states.items():
        is_running_out = _is_running_out(one)
        if one.retained_bytes < MUCH_BYTES and not is_running_out:
            told.pop(slot, None)
            continue
        if slot in told and not _is_worse(one, told[slot]):
            continue
        told[slot] = one
        text = f"database {place} keeps {bytes_text(one.retained_bytes)} of its log for slot {slot}"
        if one.wal_status == "lost":
            yield f"{text}: it has dropped what was not read yet"
        elif one.safe_bytes is not None and is_running_out:
            left = bytes_text(max(0, one.safe_bytes))
            yield f"{text}, and gives up the slot after {left} more (max_slot_wal_keep_size)"
        else:
            yield f"{text}, which its disk must hold: the query is behind"


def _is_running_out(slot: SlotState) -> bool:
    """Return whether the database will soon give up the slot, or has."""
    if slot.wal_status in ("unreserved", "lost"):
        return True
    return slot.safe_bytes is not None and slot.safe_bytes < min(LITTLE_LEFT_BYTES, slot.retained_bytes)


def _is_worse(now: SlotState, told: SlotState) -> bool:
    """Return whether it has doubled since it was said, or the rest is only half as much, or its kind is another."""
    if now.retained_bytes >= 2 * max(told.retained_bytes, 1) or (now.wal_status == "lost") > (
        told.wal_status == "lost"
    ):
        return True
    if not _is_running_out(now):
        return False
    return not _is_running_out(told) or (now.safe_bytes or 0) <= (told.safe_bytes or 0) // 2 < (told.safe_bytes or 0)


class DatabaseWatch:
    """Looks at the slots in a thread, as a database may take long to answer."""

    def __init__(self, pipeline: Pipeline, state: Path) -> None:
        self._pipeline, self._state = pipeline, state
        self._told: dict[str, SlotState] = {}
        self._warnings: list[str] = []
        self._states: Mapping[str, WatchedSlot] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replication slots", daemon=True)

    def __enter__(self) -> DatabaseWatch:
        if any(_logged(self._pipeline)):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def new_warnings(self) -> list[str]:
        new, self._warnings = self._warnings, []
        return new

    def lags(self) -> Mapping[str, SlotLag]:
        return lags_of(self._states)

    def final_lines(self) -> list[str]:
        self._is_over.set()
        self._states = slot_states(self._pipeline, self._state)
        return waiting_lines(self._states)

    def _run(self) -> None:
        while not self._is_over.is_set():
            states = slot_states(self._pipeline, self._state)
            self._warnings = [*self._warnings, *warnings_of(states, self._told)]
            if not self._is_over.is_set():
                self._states = states
            self._is_over.wait(LOOK_EVERY_S)
