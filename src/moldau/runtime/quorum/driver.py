"""The quorum at work: its questions go out, its log goes to disk, its times are kept, and those who follow it are told.

All of it happens after the quorum has come to rest: who is told something finds it as it was told, and may append.
Late answers leave only when the current business is done, since they may end up in another connection's send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, cast

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.promise import Promise
from moldau.client.peers import Peers
from moldau.log.log import Log
from moldau.raft.listener import QuorumListener
from moldau.raft.machine import Quorum
from moldau.raft.news import Committed, LeaderChanged, Leading, News, NoLongerLeading
from moldau.raft.roles import NEVER_MS, OutgoingRequest
from moldau.raft.snapshots import SnapshotId
from moldau.replica.flushing import Flusher
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

ASKING: Final = "quorum"
FETCHING: Final = "quorum fetch"
"""Fetches wait at the leader's: a vote must not wait behind them."""


class QuorumDriver:
    def __init__(
        self,
        quorum: Quorum,
        peers: Peers,
        clock: Clock,
        timers: Timers,
        flusher: Flusher,
        on_fault: Callable[[StorageFault], None] | None = None,
    ) -> None:
        """`on_fault` is told when the disk fails while nobody is there to be told but the clock or another node."""
        self._quorum = quorum
        self._metadata_log = cast(MetadataLog, quorum.log)
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._flusher = flusher
        self._on_fault = on_fault
        self._listeners: list[QuorumListener] = []
        self._timer: Timer | None = None
        self._due_ms = NEVER_MS
        self._flush_asked_to: int | None = None
        self._is_settling = False
        self._is_running = False
        self._resigned: Promise[None] | None = None

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        return self._metadata_log.log

    @property
    def leader_id(self) -> int:
        """-1 while nobody is known."""
        return self._quorum.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._quorum.leader_epoch

    @property
    def is_leader(self) -> bool:
        return self._quorum.is_leader

    @property
    def high_watermark(self) -> int:
        return self._quorum.high_watermark

    @property
    def end_offset(self) -> int:
        return self._metadata_log.end_offset

    @property
    def epoch_start_offset(self) -> int | None:
        """Where the term of this leader begins in the log: all below it was written by leaders before."""
        return self._quorum.epoch_start_offset

    @property
    def quorum(self) -> Quorum:
        return self._quorum

    def kraft_version(self) -> int:
        return self._quorum.kraft_version

    def leader_address(self) -> tuple[str, int] | None:
        """Where the leader's controller listener is."""
        endpoint = self._quorum.leader_endpoint
        return None if endpoint is None else (endpoint.host, endpoint.port)

    # --- what happens -------------------------------------------------------------------------------------------

    def add_listener(self, listener: QuorumListener) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        """Joins the quorum; a quorum of one leads when this returns."""
        self._is_running = True
        self._quorum.start()
        self._settle()

    def resign(self) -> Promise[None]:
        """Gives the lead away. Comes when another leader is known, or nobody took over in an election's time."""
        done: Promise[None] = Promise()
        if not self.is_leader or len(self._quorum.voters) == 1:
            self._guarded(self._quorum.resign)
            done.complete(None)
            return done
        self._resigned = done
        self._guarded(self._quorum.resign)
        self._timers.after_ms(self._quorum.settings.request_timeout_ms, self._give_up_waiting)
        self._settle()
        return done

    def stop(self) -> None:
        """Resigns, if that was not done, and is silent from then on."""
        if not self._is_running:
            return
        self._quorum.resign()
        self._settle()
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        self._give_up_waiting()

    def halt(self) -> None:
        """Is silent at once, as one that died."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def append(self, values: Sequence[bytes]) -> int:
        """Leader only: one batch; the offset behind it. KafkaError NOT_CONTROLLER otherwise, KAFKA_STORAGE_ERROR if the
        disk refuses: then another voter, if there is one, had better lead."""
        try:
            end_offset = self._quorum.append(values)
        except StorageFault as fault:
            self._quorum.step_down()
            self._settle()
            if not fault.is_shortage and self._on_fault is not None:
                self._on_fault(fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        self._settle()
        return end_offset

    def answer(self, request: Message, version: int) -> Message | Promise[Any]:
        """Any of the quorum's requests, from whichever listener."""
        answered = self._quorum.answer(request)
        self._settle()
        return answered

    def flushed(self) -> None:
        self._flush_asked_to = None
        if self._is_running:
            self._guarded(self._quorum.flushed)

    def flush_postponed(self, fault: StorageFault) -> None:
        """Nothing is agreed upon without the disk: the node stops, and another voter, if there is one, leads."""
        if self._on_fault is not None:
            self._on_fault(fault)

    def write_snapshot(self, snapshot: SnapshotId, values: Iterable[bytes], last_contained_ms: int = 0) -> bool:
        """A snapshot of all below its end offset, with the voters as they were there. False if there is one as new."""
        assert snapshot.end_offset <= self.high_watermark, "only what is committed is final"
        kraft_version, voters = self._quorum.voters_at(snapshot)
        return self._metadata_log.write_snapshot(
            snapshot, values, self._clock.now_ms(),
            last_contained_ms=last_contained_ms, kraft_version=kraft_version, voters=voters,
        )  # fmt: skip

    # --- what comes of it ---------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Sends, tells and replies until nothing more comes of it; then asks for the disk and for the clock."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            while self._carry_out():
                pass
        finally:
            self._is_settling = False
        if self._is_running:
            self._ask_to_flush()
            self._set_timer()

    def _carry_out(self) -> bool:
        quorum = self._quorum
        outgoing, replies, news = quorum.take_outgoing(), quorum.take_replies(), quorum.take_news()
        for asked in outgoing:
            self._send(asked)
        for answer, response in replies:
            self._timers.soon(partial(answer.complete, response))
        for each in news:
            self._tell(each)
        return bool(outgoing or replies or news)

    def _send(self, asked: OutgoingRequest) -> None:
        if not self._is_running:
            return
        purpose = FETCHING if asked.api in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT) else ASKING
        peer = self._peers.to(asked.to.host, asked.to.port, purpose)
        peer.ask(asked.api, asked.request, asked.timeout_ms, asked.version).then(partial(self._heed, asked))

    def _heed(self, asked: OutgoingRequest, outcome: Message | KafkaError) -> None:
        if self._is_running:
            self._guarded(lambda: self._quorum.on_response(asked, outcome))

    def _tell(self, news: News) -> None:
        for listener in self._listeners:
            match news:
                case Leading(epoch):
                    listener.leading(epoch)
                case NoLongerLeading():
                    listener.resigned()
                case LeaderChanged(leader_id, epoch):
                    listener.leader_changed(leader_id, epoch)
                case Committed(high_watermark):
                    listener.committed(high_watermark)
        if isinstance(news, LeaderChanged) and news.leader_id >= 0:
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        resigned, self._resigned = self._resigned, None
        if resigned is not None:
            resigned.complete(None)

    def _ask_to_flush(self) -> None:
        log = self._metadata_log
        if log.flushed_offset < log.end_offset and self._flush_asked_to != log.end_offset:
            self._flush_asked_to = log.end_offset
            self._flusher.request(self)

    def _set_timer(self) -> None:
        due_ms = self._quorum.deadline_ms
        if due_ms == self._due_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = due_ms
        if due_ms < NEVER_MS:
            self._timer = self._timers.after_ms(max(0, due_ms - self._clock.elapsed_ms()), self._beat)

    def _beat(self) -> None:
        self._timer, self._due_ms = None, NEVER_MS
        if self._is_running:
            self._guarded(self._quorum.poll)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Steps that nobody waits for: if the disk fails them, whoever keeps the node is told."""
        try:
            step()
            self._settle()
        except StorageFault as fault:
            if self._on_fault is None:
                raise
            self._on_fault(fault)
