"""The work that waits for a worker: a queue for each view, served in turn, so that no view holds up the others."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, NamedTuple

from moldau.base.promise import Promise
from moldau.log.reading import Slice
from moldau.runtime.views.ports import BatchesTask, ViewTask
from moldau.views.jobs import Evaluated, Matching, ViewFailed

Result = Evaluated | Matching | ViewFailed


class ViewWork(NamedTuple):
    view: str
    """Whose turn it is: a view's, or in a console that of a user."""
    task: ViewTask | BatchesTask
    records: Slice | None
    """Keeps the file of a ViewTask open, so that no other file gets its inode."""
    done: Promise[Any]
    """The result of the task, or ViewFailed."""


class ViewQueues:
    def __init__(self, workers: int) -> None:
        self._share = max(workers - 1, 1)
        """How many workers one view may have while others wait."""
        self._waiting: dict[str, OrderedDict[Promise[Any], ViewWork]] = {}
        """By view, in the order of their turns; none is empty."""
        self._running: Counter[str] = Counter()

    def add(self, work: ViewWork) -> None:
        self._waiting.setdefault(work.view, OrderedDict())[work.done] = work

    def withdraw(self, view: str, done: Promise[Any]) -> None:
        """Forget this piece of work, unless it has begun."""
        queue = self._waiting.get(view)
        if queue is not None and queue.pop(done, None) is not None and not queue:
            del self._waiting[view]

    def begin_next(self) -> ViewWork | None:
        """Return the work whose turn it is; None if none waits."""
        if not self._waiting:
            return None
        alone = next(iter(self._waiting))
        view = next((each for each in self._waiting if self._running[each] < self._share), alone)
        queue = self._waiting.pop(view)
        _, work = queue.popitem(last=False)
        if queue:
            self._waiting[view] = queue  # its next turn comes after those of the others
        self._running[view] += 1
        return work

    def finish(self, work: ViewWork) -> None:
        self._running[work.view] -= 1
        if not self._running[work.view]:
            del self._running[work.view]

    def clear(self) -> None:
        self._waiting.clear()
