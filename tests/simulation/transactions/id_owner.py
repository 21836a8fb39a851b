"""The processes that use one transactional id, one after the other. A process that is replaced may keep running and
writing, with an epoch that is fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from transactions.producer import TransactionalProducer

if TYPE_CHECKING:
    from transactions.world import TransactionsWorld

CRASH_GAP_MS = 7_000
RESTART_MS = (50, 1_500)
ZOMBIE_SHARE = 0.4
CHANGE_ID_SHARE = 0.3
Callback = Callable[[TransactionalProducer], None]
Make = Callable[[str, str, Random, Callback, Callback], TransactionalProducer]


class IdOwner:
    """With `may_change_id`, the next process may use another transactional id."""

    def __init__(
        self, world: TransactionsWorld, transactional_id: str, rng: Random, make: Make, may_change_id: bool
    ) -> None:
        self._may_change_id = may_change_id
        self._first_id = transactional_id
        self._changes = 0
        self._world = world
        self._rng = rng
        self._make = make
        self.transactional_id = transactional_id
        self.incarnations: list[TransactionalProducer] = []
        """The live processes; the last one may use the id."""
        self._count = 0
        self.is_over = False
        self._begin()
        self._wait()

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in self.incarnations)

    def stop(self) -> None:
        self.is_over = True
        for each in self.incarnations:
            each.is_over = True

    def _begin(self) -> None:
        self._count += 1
        name = f"{self.transactional_id}.{self._count}"
        made = self._make(name, self.transactional_id, Random(self._rng.random()), self._initialized, self._ended)
        made.is_over = self.is_over
        self.incarnations.append(made)
        self._world.clients.append(made)

    def _initialized(self, incarnation: TransactionalProducer) -> None:
        """Mark the processes with lower epochs as replaced: no request of theirs may succeed any more. That may be this
        one, because responses overtake each other."""
        for each in self.incarnations:
            is_rival = each is not incarnation and each.transactional_id == incarnation.transactional_id
            if is_rival and each.producer_id >= 0:
                late = self._earlier(each, incarnation)
                if late is not None:
                    late.is_replaced = True

    def _earlier(self, one: TransactionalProducer, other: TransactionalProducer) -> TransactionalProducer | None:
        """Return the process that got its epoch first, or None if that is unknown. The greater of two producer ids need
        not be the later one: each node has a block of them."""
        if one.producer_id == other.producer_id:
            return min(one, other, key=lambda each: each.producer_epoch)
        order = self._world.producer_ids_of(self.transactional_id)
        known = [each for each in (one, other) if each.producer_id in order]
        return min(known, key=lambda each: order.index(each.producer_id)) if known else None

    def _ended(self, incarnation: TransactionalProducer) -> None:
        """Called when a process ends by itself: it was fenced, or nothing is left to do."""
        if incarnation not in self.incarnations:
            return
        is_current = incarnation is self.incarnations[-1]
        if is_current and not self.is_over:
            self._later(self._begin_if_all_are_replaced)
        if not (is_current and self.is_over):
            self._end_incarnation(incarnation)

    def _begin_if_all_are_replaced(self) -> None:
        mine = [each for each in self.incarnations if each.transactional_id == self.transactional_id]
        if all(each.is_replaced for each in mine):
            self._begin()

    def _end_incarnation(self, incarnation: TransactionalProducer) -> None:
        self.incarnations.remove(incarnation)
        self._world.clients.remove(incarnation)
        incarnation.process.end()
        self._world.network.process_died(incarnation.process)

    # --- faults ---------------------------------------------------------------------------------------------------

    def _later(self, call: Callable[[], None]) -> None:
        self._world.timers.after_ms(self._rng.randint(*RESTART_MS), call)

    def _wait(self) -> None:
        self._world.timers.after_ms(1 + int(self._rng.expovariate(1) * CRASH_GAP_MS), self._crash)

    def _crash(self) -> None:
        if self._world.faults.is_over:
            if not self.is_over:
                self._wait()
            return
        self._wait()
        if not self.incarnations:
            return
        if self._rng.random() < ZOMBIE_SHARE:
            self._world.faults.count("a client is replaced but keeps running", self.transactional_id)
            self._begin()
            return
        self._world.faults.count("a client is killed", self.transactional_id)
        self._end_incarnation(self.incarnations[-1])
        if self._may_change_id and self._rng.random() < CHANGE_ID_SHARE:
            # No process comes back for its open transaction.
            self._changes += 1
            self.transactional_id = f"{self._first_id}-{self._changes}"
        self._later(self._begin)
