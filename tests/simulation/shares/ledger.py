"""What share groups did with each record: who holds it, what its holder said, and what members were told.

It listens to every share partition of every node, so it also knows deliveries whose response was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from machines.process import RATE_ONE

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.share.batches import Batch
from moldau.share.partition import SharePartition
from moldau.share.ports import ShareKey
from moldau.share.runs import RecordState
from moldau.share.window import ACCEPT, RELEASE, RENEW, Acknowledged, Acquired, Window

if TYPE_CHECKING:
    from shares.world import SharesWorld

DRIFT_MAX = 250
"""In ten thousandths: more than a machine's clock may be wrong."""
DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(slots=True)
class Holder:
    member_id: str
    since_ms: int
    has_let_go: bool = False


@dataclass(slots=True)
class Known:
    """What is known of the records of one partition in one group."""

    finished: set[int] = field(default_factory=set)
    """Records that need not come again: their holder accepted or rejected them, or had the last of their deliveries."""
    accepted: set[int] = field(default_factory=set)
    """Records of which a member was told that they are accepted."""
    counts: dict[int, int] = field(default_factory=dict)
    """The highest delivery count of each record."""
    floor: int = 0
    """The first record that is not finished."""

    def finish(self, offsets: Iterable[int]) -> None:
        self.finished.update(offsets)
        while self.floor in self.finished:
            self.floor += 1


def types_of(said: Acknowledged) -> Iterator[tuple[int, int]]:
    """Yield each offset with what was said of it."""
    for place, offset in enumerate(range(said.first_offset, said.last_offset + 1)):
        yield offset, said.types[0] if len(said.types) == 1 else said.types[place]


class ShareLedger:
    def __init__(self, world: SharesWorld) -> None:
        self._world = world
        self._known: dict[ShareKey, Known] = {}
        self._holders: dict[SharePartition, dict[int, Holder]] = {}
        """By leader, and not by partition: a leader that was replaced may not know it yet."""
        self.deliveries = 0
        self.said: Counter[int] = Counter()
        """How many acknowledgements of each type were confirmed."""

    def known(self, key: ShareKey) -> Known:
        return self._known.setdefault(key, Known())

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note what share partitions do."""
        acquire, acknowledge, release = SharePartition.acquire, SharePartition.acknowledge, SharePartition.release

        def watched_acquire(share: SharePartition, wanted: Any, *arguments: Any) -> list[Acquired]:
            acquired = acquire(share, wanted, *arguments)
            self._acquired(share, wanted.member_id, acquired)
            return acquired

        def watched_acknowledge(share: SharePartition, member_id: str, said: Sequence[Acknowledged]) -> Promise[Any]:
            renewed = self._said(share, member_id, said)
            return acknowledge(share, member_id, said).map(lambda error: self._answered(renewed, error))

        def watched_release(share: SharePartition, member_id: str) -> Promise[Any]:
            for holder in self._holders.get(share, {}).values():
                holder.has_let_go = holder.has_let_go or holder.member_id == member_id
            return release(share, member_id)

        with ExitStack() as patches:
            patches.enter_context(patch.object(SharePartition, "acquire", watched_acquire))
            patches.enter_context(patch.object(SharePartition, "acknowledge", watched_acknowledge))
            patches.enter_context(patch.object(SharePartition, "release", watched_release))
            yield

    # --- what share partitions do ---------------------------------------------------------------------------------

    def _acquired(self, share: SharePartition, member_id: str, acquired: Sequence[Acquired]) -> None:
        known, holders = self.known(share.key), self._holders.setdefault(share, {})
        for each in acquired:
            for offset in range(each.first_offset, each.last_offset + 1):
                self.deliveries += 1
                self._judge(share, known, offset, each.delivery_count)
                self._judge_holder(share, holders.get(offset), offset, member_id)
                holders[offset] = Holder(member_id, self._world.elapsed_ms)
                known.counts[offset] = max(each.delivery_count, known.counts.get(offset, 0))
                if each.delivery_count >= self._world.delivery_limit:
                    known.finish([offset])

    def _judge(self, share: SharePartition, known: Known, offset: int, count: int) -> None:
        name = self._world.shown(share.key)
        if count > self._world.delivery_limit:
            self._world.violated(f"{name}: {offset} is delivered for the {count}th time")
        if not 1 <= count <= known.counts.get(offset, 0) + 1:
            self._world.violated(f"{name}: {offset} has delivery count {count} after {known.counts.get(offset, 0)}")
        if offset in known.accepted and not self._world.is_replaced(share):
            self._world.violated(f"{name}: {offset} is delivered again although it was accepted")

    def _judge_holder(self, share: SharePartition, holder: Holder | None, offset: int, member_id: str) -> None:
        if holder is None or holder.has_let_go:
            return
        lock_ms = self._world.lock_ms * (RATE_ONE - DRIFT_MAX) // RATE_ONE
        if self._world.elapsed_ms - holder.since_ms < lock_ms:
            name = self._world.shown(share.key)
            self._world.violated(f"{name}: {member_id} gets {offset}, which {holder.member_id} holds")

    def _said(self, share: SharePartition, member_id: str, said: Sequence[Acknowledged]) -> list[Holder]:
        """Note what a member says of records that it holds. Return the holders who want to hold them longer."""
        known, holders = self.known(share.key), self._holders.get(share, {})
        renewed = []
        for offset, kind in (found for each in said for found in types_of(each)):
            holder = holders.get(offset)
            if holder is None or holder.member_id != member_id:
                continue
            if kind == RENEW:
                renewed.append(holder)
            else:
                holder.has_let_go = True
                if kind != RELEASE:
                    known.finish([offset])
        return renewed

    def _answered(self, renewed: Iterable[Holder], error: KafkaError | None) -> KafkaError | None:
        for holder in renewed if error is None else ():
            holder.since_ms = self._world.elapsed_ms
        return error

    def held_by_others(self, key: ShareKey, member_id: str) -> list[int]:
        """Return the records that other members hold."""
        return [
            offset
            for share, holders in self._holders.items()
            if share.key == key
            for offset, holder in holders.items()
            if holder.member_id != member_id and not holder.has_let_go
        ]

    # --- what members are told ------------------------------------------------------------------------------------

    def confirmed(self, member_id: str, key: ShareKey, said: Sequence[Acknowledged]) -> None:
        """A member was told that what it said is written."""
        known = self.known(key)
        for offset, kind in (found for each in said for found in types_of(each)):
            self.said[kind] += 1
            if kind not in (RELEASE, RENEW) and offset not in known.finished:
                self._world.violated(
                    f"{self._world.shown(key)}: {member_id} may say {kind} of {offset}, which it does not hold"
                )
            if kind == ACCEPT:
                known.accepted.add(offset)

    # --- after every step -----------------------------------------------------------------------------------------

    def check_window(self, key: ShareKey, window: Window) -> None:
        """Check that a window has passed no unfinished record."""
        self._check_start(key, window.start_offset, "a window")
        for run in window._runs():
            if run.is_done:
                self._check_done(key, run.first, run.last, "a window")

    def check_state(self, key: ShareKey, start_offset: int, batches: Iterable[Batch]) -> None:
        self._check_start(key, start_offset, "a share coordinator")
        for each in batches:
            if each.delivery_state in DONE:
                self._check_done(key, each.first_offset, each.last_offset, "a share coordinator")

    def _check_start(self, key: ShareKey, start_offset: int, who: str) -> None:
        floor = self.known(key).floor
        if start_offset > floor:
            self._world.violated(f"{who} of {self._world.shown(key)} starts at {start_offset}: {floor} is unfinished")

    def _check_done(self, key: ShareKey, first: int, last: int, who: str) -> None:
        finished = self.known(key).finished
        if wrong := [offset for offset in range(first, last + 1) if offset not in finished]:
            self._world.violated(f"{who} of {self._world.shown(key)} has finished {wrong[0]}, and nobody else has")

    def forget_ended(self) -> None:
        for share in [share for share in self._holders if share.failure is not None]:
            del self._holders[share]
