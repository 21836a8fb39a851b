"""What Spark asks between the micro-batches of a stream of PostgreSQL's changes: where the next one ends.

A batch ends with a transaction. The database keeps its changes until Spark has asked for the batch after it: then Spark
has noted it as done, and never repeats it. So the changes of a batch can be read as often as Spark wants
(`reading.py`). Runs in one process per query, beside the driver.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from moldau.base.errors import StorageFault
from moldau.databases.changes.errors import ChangesError, ChangesLost
from moldau.databases.changes.offsets import Offset
from moldau.databases.changes.options import ChangeOptions
from moldau.databases.changes.postgresql import (
    Table,
    advance_slot,
    check_publication,
    check_server,
    check_slot,
    connect,
    create_slot,
    drop_slot,
    ensure_publication,
    find_changes,
    log_ends,
    object_name,
    read_table,
)
from moldau.databases.changes.reading import ChangePiece, PartPiece, Piece
from moldau.databases.changes.slot_files import Manifest, SlotFiles, orphans
from moldau.databases.changes.snapshot import Cancelled, copy_table
from moldau.databases.changes.tables import check_declared

if TYPE_CHECKING:
    import psycopg

IDLE_S: Final = 0.4
"""How long one call waits for changes; Spark cannot stop a query during it."""
POLL_S: Final = 0.05
SCAN_SHARE: Final = 4.0
"""The slot is looked through at most a fifth of the time: the database decodes its log again from the slot's restart
point, however much of it is of other tables."""
HEARTBEAT_S: Final = 5.0
"""How often the slot is moved over a log without changes of the table."""
CANCEL_S: Final = 2.0
UNREACHABLE_S: Final = 120.0
"""For so long a database that does not answer counts as one without changes."""


class ChangeStream:
    def __init__(self, options: ChangeOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._clock = options, clock
        self._connection: psycopg.Connection[Any] | None = None
        self._copying: _Copying | None = None
        self._lock: int | None = None
        self._is_bounded = False
        self._target: int | None = None
        """Where an available-now run ends, once it is known."""
        self._slot: str | None = None
        """The slot that the connection was checked for."""
        self._advanced = 0
        self._scanned = 0
        """The log up to here has no changes after the position of the stream."""
        self._next_scan_s = 0.0
        self._heartbeat: int | None = None
        """The beginning of a record of the log, up to which the slot may move when the log is on disk so far."""
        self._next_heartbeat_s = 0.0
        self._unreachable_since_s: float | None = None

    # --- what Spark asks --------------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        return Offset()

    def fix_target(self) -> None:
        """End the stream at the present end of the log, for Trigger.AvailableNow."""
        self._is_bounded = True

    def next_end(self, start: Offset, rows_max: int | None = None) -> Offset:
        """Return the end of the next batch; `start` if there is none. Spark has committed `start`."""
        most = rows_max or self._options.rows_max
        if start.is_fresh:
            manifest = self._snapshot(most)
            return start if manifest is None else _next_parts(manifest, 0, most)
        self._own(start)
        if start.part is not None:
            return _next_parts(self._manifest(start), start.part, most)
        self._files(start).remove_snapshot()
        try:
            end = self._next_changes(start, most)
            self._unreachable_since_s = None
            return end
        except ConnectionError:
            self._disconnect()
            now = self._clock()
            self._unreachable_since_s = self._unreachable_since_s or now
            if self._is_bounded or now - self._unreachable_since_s > UNREACHABLE_S:
                raise
            time.sleep(IDLE_S)
            return start

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        """Return what is to be read for a batch; the same for the same offsets."""
        if start.part is None and not start.is_fresh:
            return [ChangePiece(start, end)] if end != start else []
        if end.is_fresh:
            return []
        manifest = self._manifest(end)
        firsts = [sum(manifest.rows[:number]) for number in range(len(manifest.rows))]
        files, to = self._files(end), len(manifest.rows) if end.part is None else end.part
        return [
            PartPiece(str(files.part(number)), manifest.offset.lsn, manifest.at_ms, firsts[number])
            for number in range(start.part or 0, to)
        ]

    def close(self) -> None:
        if self._copying is not None:
            self._copying.cancel()
            self._copying = None
        self._disconnect()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- the snapshot -----------------------------------------------------------------------------------------------

    def _snapshot(self, rows_max: int) -> Manifest | None:
        """Return the manifest of the snapshot, or None while it is being copied, in a thread: Spark can stop the query
        meanwhile. A bounded stream waits, as it would end without a batch."""
        if self._copying is None:
            self._copying = _Copying(self._options, rows_max)
        if not self._copying.wait(None if self._is_bounded else IDLE_S):
            return None
        copying, self._copying = self._copying, None
        manifest = copying.result()
        self._lock = copying.lock
        return manifest

    def _files(self, offset: Offset) -> SlotFiles:
        assert offset.slot is not None, "only a fresh stream has no slot"
        return SlotFiles(self._options.files / offset.slot)

    def _manifest(self, offset: Offset) -> Manifest:
        manifest = self._files(offset).read_manifest()
        if manifest is None:
            raise ChangesLost(
                f"the snapshot of table {self._options.shown_table} is gone from {self._files(offset).path};"
                " `moldau pipeline run FILE --fresh` takes a new one"
            )
        return manifest

    def _own(self, start: Offset) -> None:
        """Lock the slot's directory, so that nobody takes it for an orphan."""
        if self._lock is None:
            self._lock = self._files(start).lock()

    # --- the changes ------------------------------------------------------------------------------------------------

    def _next_changes(self, start: Offset, most: int) -> Offset:
        deadline = self._clock() + IDLE_S
        while True:
            end = self._scan(self._connected(start), start, most)
            if end is not None:
                return start.at(end)
            if self._is_bounded or self._clock() >= deadline:
                return start
            time.sleep(POLL_S)

    def _scan(self, connection: psycopg.Connection[Any], start: Offset, most: int) -> int | None:
        """Return where the next changes end; None if there are none, or if it is too early to look again."""
        options, slot = self._options, start.slot
        assert slot is not None, "only a fresh stream has no slot"
        if start.lsn > self._advanced:
            advance_slot(connection, options.address, slot, start.lsn)
            self._advanced = start.lsn
        flushed, inserted = log_ends(connection, options.address)
        if self._is_bounded and self._target is None:
            self._target = inserted
        began = self._clock()
        if not self._is_bounded and (flushed <= self._scanned or began < self._next_scan_s):
            return None
        end = find_changes(connection, options.address, slot, options.publication, self._target, most)
        now = self._clock()
        self._next_scan_s = now + (now - began) * SCAN_SHARE
        if end is not None and end > start.lsn:
            return end
        self._scanned = flushed
        if not self._is_bounded:  # else what is behind the target was not looked at
            self._beat(connection, slot, flushed, inserted)
        return None

    def _beat(self, connection: psycopg.Connection[Any], slot: str, flushed: int, inserted: int) -> None:
        """Move the slot over a log without changes of the table, else the database would keep it for ever.

        Only to the beginning of a record: one that begins before the slot's position is never decoded. The end of what
        is on disk may be within a record; where the next record was to begin at an earlier time is not.
        """
        if self._heartbeat is not None and self._heartbeat <= flushed and self._clock() >= self._next_heartbeat_s:
            self._check_publication(connection)
            advance_slot(connection, self._options.address, slot, self._heartbeat)
            self._next_heartbeat_s = self._clock() + HEARTBEAT_S
            self._heartbeat = None
        if self._heartbeat is None:
            self._heartbeat = inserted

    def _connected(self, start: Offset) -> psycopg.Connection[Any]:
        """Return a connection. With each new one, the server may have been restarted, and the slot may have gone back
        to an earlier position."""
        assert start.slot is not None, "only a fresh stream has no slot"
        if self._connection is None or self._connection.closed or self._slot != start.slot:
            self._disconnect()
            options = self._options
            self._connection = connect(options.address, "moldau changes")
            if self._slot is None:
                _check_declared(options, read_table(self._connection, options.address, *options.table))
            check_slot(self._connection, options.address, start.slot)
            self._check_publication(self._connection)
            self._slot, self._advanced, self._scanned, self._heartbeat = start.slot, 0, 0, None
        return self._connection

    def _check_publication(self, connection: psycopg.Connection[Any]) -> None:
        options = self._options
        check_publication(connection, options.address, options.publication, options.table, options.wanted)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check_declared(options: ChangeOptions, table: Table) -> None:
    if options.is_declared:
        check_declared(table, options.columns)


def _next_parts(manifest: Manifest, part: int, rows_max: int) -> Offset:
    """Return the offset after as many parts as have at most `rows_max` rows, but at least one."""
    rows, to = 0, part
    while to < len(manifest.rows) and (to == part or rows + manifest.rows[to] <= rows_max):
        rows += manifest.rows[to]
        to += 1
    return manifest.offset if to == len(manifest.rows) else replace(manifest.offset, part=to)


class _Copying:
    """Creates a slot and copies the table, in a thread."""

    def __init__(self, options: ChangeOptions, rows_max: int) -> None:
        self._options, self._rows_max = options, rows_max
        self._is_cancelled = threading.Event()
        self._manifest: Manifest | None = None
        self._error: Exception | None = None
        self.lock: int | None = None
        """Holds the lock of the slot's directory."""
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None) -> bool:
        """Return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> Manifest:
        if self._error is not None:
            raise self._error
        assert self._manifest is not None, "it has ended without an error"
        return self._manifest

    def cancel(self) -> None:
        """End it soon; a slot that it has made is dropped, now or as an orphan."""
        self._is_cancelled.set()
        if self.wait(CANCEL_S) and self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _run(self) -> None:
        try:
            self._manifest = self._copy()
        except Exception as error:  # result() raises it where Spark waits
            self._error = error

    def _copy(self) -> Manifest:
        options = self._options
        slot = object_name(options.pipeline, options.source, token_hex(4))
        files = SlotFiles(options.files / slot)
        with closing(connect(options.address, "moldau changes")) as connection:
            check_server(connection, options.address)
            table = read_table(connection, options.address, *options.table)
            _check_declared(options, table)
            drop_orphans(options)
            ensure_publication(connection, options.address, options.publication, table, options.wanted)
            lock = files.create()
            try:
                lsn = create_slot(connection, options.address, slot)
                manifest = copy_table(
                    options.address, files, lsn, options.table, options.columns, self._rows_max,
                    self._is_cancelled.is_set,
                )  # fmt: skip
            except BaseException:
                with suppress(ChangesError, ConnectionError, StorageFault, Cancelled):
                    drop_slot(connection, options.address, slot)
                    files.remove()
                os.close(lock)
                raise
        self.lock = lock
        return manifest


def drop_orphans(options: ChangeOptions) -> list[str]:
    """Drop the slots of the source that belong to no checkpoint, and return their names."""
    dropped = []
    for files, lock in orphans(options.files, options.checkpoints):
        try:
            with closing(connect(options.address)) as connection:
                if drop_slot(connection, options.address, files.slot):
                    dropped.append(files.slot)
            files.remove()
        finally:
            os.close(lock)
    return dropped
