"""When Python's garbage collector runs, so that it never holds up the event loop for long.

A collection stops everything and takes about a tenth of a microsecond for each object that it looks at. A node with
10,000 partitions has a million objects, which stay: a full collection of them takes 100 to 200 ms. So objects that have
survived a full collection are frozen, which means never looked at again, and full collections come often enough to find
few new objects.

A reference cycle that becomes garbage after it was frozen stays in memory. Most objects are in no cycle and are freed
at once when they are no longer used. For the rest, everything is looked at again when the frozen objects have doubled,
but at most once an hour.
"""

from __future__ import annotations

import gc
import logging
from time import monotonic
from typing import Any, Final

from moldau.base.loop_watch import LONG_CALL_S, LoopWatch

log = logging.getLogger("moldau.node")

THRESHOLDS: Final = (2_000, 3, 1)
"""New objects before a collection of these; collections of new objects before one of those that survived one; how many
of these before a full one. So a full collection looks at some 20,000 objects."""
LOOK_AGAIN_S: Final = 3600.0
FEW_OBJECTS: Final = 200_000
"""Fewer frozen objects are never looked at again: they take less than 100 MB, garbage or not."""


class GarbageCollector:
    """Sets the thresholds, freezes what survives, and notes collections that take long."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._began_s = 0.0
        self._looked_s = monotonic()
        self._frozen = 0

    def start(self) -> None:
        """Freeze all present objects, since they stay."""
        gc.collect()
        gc.freeze()
        gc.collect()  # nothing is left: Python delays full collections by how much the last one found
        self._frozen = gc.get_freeze_count()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Called at the beginning and the end of each collection."""
        if phase == "start":
            self._began_s = monotonic()
            return
        if info["generation"] == 2:
            gc.freeze()
        took_s = monotonic() - self._began_s
        if took_s > LONG_CALL_S:
            # Also part of the call in which it happened, which is noted too.
            self._watch.note(f"garbage collection of generation {info['generation']}", took_s)

    def collect_if_due(self) -> None:
        """Collect everything, frozen or not, if that is due. To be called now and then."""
        if monotonic() - self._looked_s < LOOK_AGAIN_S:
            return
        self._looked_s = monotonic()
        frozen = gc.get_freeze_count()
        if frozen < max(FEW_OBJECTS, 2 * self._frozen):
            return
        gc.unfreeze()
        found = gc.collect()
        self._frozen = gc.get_freeze_count()
        log.info("%d of %d frozen objects were garbage", found, frozen)
