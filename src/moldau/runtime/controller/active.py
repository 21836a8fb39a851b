"""The active controller: decides, appends, applies, and responds when the records are committed.

While its node leads the quorum, it is the single writer of the metadata log. Decisions see all earlier decisions,
committed or not; everyone else sees an image only when a majority has its records on disk. When the node is no longer
the leader, uncommitted decisions are dropped, and waiting requests get NOT_CONTROLLER.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.metadata.apply import Changes, apply
from moldau.metadata.controller.decision import Decision
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import encode_record
from moldau.runtime.quorum.committed_metadata import CommittedMetadata

R = TypeVar("R")


class Writer(Protocol):
    """The part of the quorum that its leader uses to write."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def append(self, values: Sequence[bytes]) -> int: ...


class Duties(Protocol):
    """Work that an active controller does without a request."""

    def take_over(self) -> None: ...

    def lay_down(self) -> None: ...


class _Parked(NamedTuple):
    """A response that waits until its records are committed."""

    commit_offset: int
    image: MetadataImage
    changes: Changes | None
    """None if the decision has no records."""
    answer: Promise[Any]
    response: Any


class Controller:
    """A listener of the quorum, which calls `leading`, `resigned` and `committed`."""

    def __init__(self, writer: Writer, committed: CommittedMetadata, current: CurrentImage) -> None:
        self._writer = writer
        self._committed = committed
        self._current = current
        self._image = MetadataImage()
        self._is_active = False
        self._parked: deque[_Parked] = deque()
        self._duties: list[Duties] = []

    def on_active(self, duties: Duties) -> None:
        self._duties.append(duties)

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def next_offset(self) -> int:
        """The offset of the first record of the next decision."""
        return self._writer.end_offset

    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Promise[R]:
        """Decide on the latest image. The promise is completed when all that the decision depends on is committed, or
        with a KafkaError: NOT_CONTROLLER if this node is not or no longer the leader, KAFKA_STORAGE_ERROR if its disk
        failed."""
        answer: Promise[Any] = Promise()
        if not self._is_active:
            answer.complete(KafkaError(ErrorCode.NOT_CONTROLLER))
            return answer
        decision = decide(self._image)
        changes: Changes | None = None
        if decision.records:
            try:
                end_offset = self._writer.append([encode_record(record) for record in decision.records])
            except KafkaError as refused:
                answer.complete(refused)
                return answer
            if not self.is_active:
                # While it appended, this node found out that it has no followers left, and resigned.
                answer.complete(KafkaError(ErrorCode.NOT_CONTROLLER))
                return answer
            self._image, changes = apply(self._image, decision.records, end_offset - 1, self._writer.leader_epoch)
        self._parked.append(_Parked(self._writer.end_offset, self._image, changes, answer, decision.response))
        self._release()
        return answer

    # --- calls of the quorum ------------------------------------------------------------------------------------

    def leading(self, epoch: int) -> None:
        """Begin with the whole log: the uncommitted records of earlier leaders are committed with this leader's own."""
        end_offset = self._writer.end_offset
        self._image, changes = self._committed.read(end_offset)
        self._is_active = True
        self._parked.append(_Parked(end_offset, self._image, changes, Promise(), None))
        self._release()
        for duties in self._duties:
            duties.take_over()

    def no_longer_leading(self) -> None:
        self._is_active = False
        parked, self._parked = self._parked, deque()
        for duties in self._duties:
            duties.lay_down()
        for each in parked:
            if not each.answer.done:
                each.answer.complete(KafkaError(ErrorCode.NOT_CONTROLLER))

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Do nothing: `leading` and `resigned` tell the controller what it needs."""

    def committed(self, high_watermark: int) -> None:
        if self._is_active:
            self._release()
        else:
            self._committed.committed(high_watermark)

    def _release(self) -> None:
        while self._parked and self._parked[0].commit_offset <= self._writer.high_watermark:
            parked = self._parked.popleft()
            if parked.changes is not None:
                self._current.publish(parked.image, parked.changes)
            parked.answer.complete(parked.response)
