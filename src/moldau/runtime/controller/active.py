"""The active controller: decides, appends, applies, and responds when the records are committed.

While its node leads the quorum, it is the single writer of the metadata log. Decisions see all earlier decisions,
committed or not; everyone else sees an image only when a majority has its records on disk. When the node is no longer
the leader, uncommitted decisions are dropped, and waiting requests get NOT_CONTROLLER.

A decision of thousands of records takes several turns of the loop: it is decided, encoded and applied to the latest
image in steps, and appended as one batch in the last one. Later requests wait until then: each sees all earlier
decisions, and nobody sees half of one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from moldau.base.clock import Timer
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.apply import Changes, apply_in_steps
from moldau.metadata.controller.decision import Decision
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import encode_record
from moldau.runtime.internal_errors import INTERNAL_ERRORS, complete_alone
from moldau.runtime.own_work import OwnWork
from moldau.runtime.quorum.committed_metadata import NOT_READABLE, SHORTAGE_RETRY_MS, CommittedMetadata

R = TypeVar("R")
Decide = Callable[[MetadataImage], Decision[R] | Steps[Decision[R]]]

log = logging.getLogger("moldau.controller")


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


class _Submitted(NamedTuple):
    """A request that is not decided yet, or not completely."""

    answer: Promise[Any]
    work: LongWork[None]


class Controller:
    """A listener of the quorum, which calls `leading`, `no_longer_leading`, `leader_changed` and `committed`."""

    def __init__(self, writer: Writer, committed: CommittedMetadata, current: CurrentImage, own_work: OwnWork) -> None:
        self._own_work = own_work
        self._writer = writer
        self._committed = committed
        self._current = current
        self._image = MetadataImage()
        self._is_active = False
        self._taking_over: Timer | None = None
        self._leader_id = self._leader_epoch = -1
        self.previous_leader_id = -1
        """The node that led the quorum before the present leader; -1 if unknown."""
        self._parked: deque[_Parked] = deque()
        self._submitted: deque[_Submitted] = deque()
        """The request that is being decided, and those that wait for it."""
        self._duties: list[Duties] = []

    def add_duties(self, duties: Duties) -> None:
        """Do this work whenever this controller is the active one."""
        self._duties.append(duties)

    @property
    def is_active(self) -> bool:
        return self._is_active

    @property
    def next_offset(self) -> int:
        """The offset of the first record of the next decision."""
        return self._writer.end_offset

    def submit(self, decide: Decide[R]) -> Promise[R]:
        """Decide on the latest image. The promise is completed when all that the decision depends on is committed, or
        with a KafkaError: NOT_CONTROLLER if this node is not or no longer the leader, KAFKA_STORAGE_ERROR if its disk
        failed, UNKNOWN_SERVER_ERROR if `decide` raises anything."""
        return self._submit(decide, _answer_fault)

    def submit_own(self, decide: Decide[R]) -> Promise[R]:
        """Like `submit`, for what this node does without a request: what `decide` raises stops the node, and so does
        what the waiter for the answer raises."""
        answer: Promise[R] = Promise()
        decided = self._submit(decide, lambda _, fault: self._own_work.on_fault(fault))
        decided.then(self._own_work.guard(answer.complete))
        return answer

    def _submit(self, decide: Decide[R], on_fault: Callable[[Promise[Any], Exception], None]) -> Promise[R]:
        answer: Promise[Any] = Promise()
        if not self._is_active:
            answer.complete(KafkaError(ErrorCode.NOT_CONTROLLER))
            return answer

        def end() -> None:
            """Decide the next request in the next turn."""
            if self._is_first(submitted):
                self._submitted.popleft()
                if self._submitted:
                    self._own_work.soon(self._submitted[0].work)

        def on_decided(_: None) -> None:
            end()
            self._release()

        def on_failed(fault: Exception) -> None:
            end()
            on_fault(answer, fault)

        # What is published has been decided: a fault there is not one of this request.
        on_done = self._own_work.guard(on_decided)
        submitted = _Submitted(answer, LongWork(self._own_work.soon, self._steps(decide, answer), on_done, on_failed))
        self._submitted.append(submitted)
        if len(self._submitted) == 1:
            submitted.work()
        return answer

    def _is_first(self, submitted: _Submitted) -> bool:
        return bool(self._submitted) and self._submitted[0] is submitted

    def _steps(self, decide: Decide[R], answer: Promise[Any]) -> Steps[None]:
        decided = decide(self._image)
        decision = decided if isinstance(decided, Decision) else (yield from decided)
        changes: Changes | None = None
        if decision.records:
            values: list[bytes] = []
            for some in split(decision.records, ITEMS_A_TURN):
                if values:
                    yield
                values += map(encode_record, some)
            # The offset is known only after the append: the quorum may append records of its own between two steps.
            image, changes = yield from apply_in_steps(self._image, decision.records, self._image.offset, 0)
            if len(values) > ITEMS_A_TURN:
                yield  # the batch of all records is built in the last step
            submitted = self._submitted[0]
            try:
                end_offset = self._writer.append(values)
            except KafkaError as refused:
                _answer(answer, refused)
                return
            except Exception as fault:  # the log may have the records, and the image of this controller does not
                self._own_work.on_fault(fault)
                raise
            if not self._is_first(submitted):
                # While it appended, this node found out that it has no followers left, and resigned.
                _answer(answer, KafkaError(ErrorCode.NOT_CONTROLLER))
                return
            self._image = replace(image, offset=end_offset - 1, epoch=self._writer.leader_epoch)
        self._parked.append(_Parked(self._writer.end_offset, self._image, changes, answer, decision.response))

    # --- calls of the quorum ------------------------------------------------------------------------------------

    def leading(self, epoch: int) -> None:
        """Begin with the whole log: the uncommitted records of earlier leaders are committed with this leader's own.
        Without file descriptors to read it, this is tried again every second, and requests get NOT_CONTROLLER."""
        self._taking_over = None
        end_offset = self._writer.end_offset
        self._committed.stop()
        try:
            self._image, changes = self._committed.read(end_offset)
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            log.warning("%s: %s", NOT_READABLE, fault)
            self._taking_over = self._own_work.after_ms(SHORTAGE_RETRY_MS, partial(self.leading, epoch))
            return
        self._is_active = True
        self._parked.append(_Parked(end_offset, self._image, changes, Promise(), None))
        self._release()
        for duties in self._duties:
            duties.take_over()

    def no_longer_leading(self) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
            self._taking_over = None
        self._is_active = False
        parked, self._parked = self._parked, deque()
        submitted, self._submitted = self._submitted, deque()
        for duties in self._duties:
            duties.lay_down()
        # A request that is appending right now gets its answer from there.
        dropped = [each for each in submitted if not each.work.is_in_step]
        for each in dropped:
            each.work.cancel()
        for answer in [*(each.answer for each in parked), *(each.answer for each in dropped)]:
            if not answer.done:
                _answer(answer, KafkaError(ErrorCode.NOT_CONTROLLER))

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        if leader_id >= 0 and epoch > self._leader_epoch:
            self.previous_leader_id, self._leader_id, self._leader_epoch = self._leader_id, leader_id, epoch

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
                if len(parked.changes.topics) > ITEMS_A_TURN:
                    # Whoever waits for the response looks at each topic again.
                    self._own_work.soon(partial(_answer, parked.answer, parked.response))
                    self._own_work.soon(self._release)
                    return
            _answer(parked.answer, parked.response)


def _answer_fault(answer: Promise[Any], fault: Exception) -> None:
    if not isinstance(fault, KafkaError):
        INTERNAL_ERRORS.log(log, "a decision of the controller failed")
        fault = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(fault))
    _answer(answer, fault)


def _answer(answer: Promise[Any], response: Any) -> None:
    complete_alone(answer, response, log, "the controller")
