"""Which driver may write the batches of a query: one at a time, and no longer after another has taken over.

Spark may run one query on two drivers, for example if one was suspended and its supervisor started another. Each has a
run id. The driver whose new batch comes last takes the query over (`claim`), as a new producer of a transactional id
does; the one before it is refused from then on. Every change of the journal is a compare-and-swap, so a driver that was
suspended between looking and changing has changed nothing when it continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from moldau.spark.lake.journal import Entry, Journal, State
from moldau.spark.lake.staging import Staging
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError

FORMER_RUNS_MAX = 32
"""The journal names so many former drivers. An older one could take the query over again; that duplicates nothing,
because the table has its batches."""


class DriverFenced(LakeError):
    """This driver has lost the query to another one."""


class Ownership:
    """One driver's hold on its query, for one batch."""

    def __init__(self, table: str, tag: BatchTag) -> None:
        self._table, self._tag = table, tag
        self._journal = Journal(table, tag.query_id)
        self.staging = Staging(table, tag.query_id, tag.run_id)

    def look(self) -> State | None:
        """Return the query's state in this table. Removes this driver's staged files and raises DriverFenced if it has
        lost the query."""
        state = self._journal.last()
        if state is not None and self._tag.run_id in state.former_runs:
            self.staging.sweep()
            raise self._fenced()
        return state

    def is_owner(self, state: State | None) -> bool:
        return state is not None and state.run_id == self._tag.run_id

    def claim(
        self, before: State | None, files: Sequence[DataFile], abandoned: Sequence[Entry] = (), epoch_min: int = 1
    ) -> State | None:
        """Take the query over; return None if another driver has changed the state meanwhile: look again then.

        Raises DriverFenced if files are missing: another driver has taken over, and removed them.
        """
        if not self.staging.has(files):
            raise self._fenced()
        if before is None:
            state = State(1, epoch_min, self._tag.run_id, abandoned=tuple(abandoned))
        else:
            state = State(
                before.number + 1,
                max(before.epoch + 1, epoch_min),
                self._tag.run_id,
                (before.run_id, *before.former_runs)[:FORMER_RUNS_MAX],
                before.entry,
                tuple(abandoned),
            )
        if not self._journal.append(state, before):
            return None
        self.staging.sweep_others(state.epoch)
        return state

    def begin(
        self, state: State, files: Sequence[DataFile], removes: Sequence[str] = (), abandoned: Sequence[Entry] = ()
    ) -> Entry:
        """Write the entry of this batch's commit. Raises DriverFenced if another driver has taken over."""
        moves = self.staging.adopt(files, state.epoch)
        if moves is not None:
            self.staging.make_directories(moves)
            entry = Entry(state.epoch, self._tag.batch_id, moves, tuple(removes))
            begun = State(state.number + 1, state.epoch, state.run_id, state.former_runs, entry, tuple(abandoned))
            if self._journal.append(begun, state):
                return entry
        self.staging.sweep(state.epoch)
        raise self._fenced()

    @contextmanager
    def task_fencing_errors(self) -> Iterator[None]:
        """Raise DriverFenced in a task whose directory is gone: only a driver that takes over removes it."""
        try:
            yield
        except FileNotFoundError as error:
            state = self._journal.last()
            if state is not None and not self.is_owner(state):
                raise self._fenced() from error
            raise

    @contextmanager
    def fencing_errors(self) -> Iterator[None]:
        """Raise DriverFenced instead of an error that has come because another driver has taken over."""
        try:
            yield
        except (OSError, LakeError):
            self.look()
            raise

    def end(self, state: State | None) -> None:
        """Remove what the batch has left; nothing of it is needed any more."""
        self.staging.sweep(state.epoch if state is not None and self.is_owner(state) else None)
        if self._tag.once:
            self._journal.remove()

    def abort(self) -> None:
        """Remove the files of a failed batch, except those of a commit that has begun."""
        state = self._journal.last()
        is_begun = state is not None and state.entry is not None and state.entry.batch_id == self._tag.batch_id
        self.staging.sweep(state.epoch if state is not None and self.is_owner(state) and not is_begun else None)
        if self._tag.once and not is_begun:
            self._journal.remove()

    def _fenced(self) -> DriverFenced:
        return DriverFenced(
            f"{self._table}: another driver of query {self._tag.query_id} has taken over, so batch "
            f"{self._tag.batch_id} of this one was not written; run each query (each checkpoint) on one driver only, "
            "and stop this one if it still runs"
        )
