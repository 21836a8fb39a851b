"""Drives the quorum machine: sends its requests, flushes its log, runs its timer and notifies its listeners.

Listeners are called only when the machine is not in the middle of a step, so that they see a consistent state and may
append. Delayed responses are sent in the next turn of the loop, because completing one may write to another connection.

A step that finds no room on the disk, not even in the reserve, does not stop the node. It leads no longer, and tries
again every second; as a follower it still votes if its vote can be written, and fetches what it could not append.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, cast

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.client.peers import Peers
from moldau.log.log import Log
from moldau.raft.commit_times import CommitTimes
from moldau.raft.machine import Quorum
from moldau.raft.news import Committed, LeaderChanged, Leading, News, NoLongerLeading, QuorumListener
from moldau.raft.ports import SnapshotDownload
from moldau.raft.roles import NEVER_MS, Leader, OutgoingRequest
from moldau.raft.snapshots import SnapshotId
from moldau.replica.flushing import Flusher
from moldau.runtime.fault_log import FaultLog
from moldau.runtime.quorum.metadata_log import MetadataLog, SnapshotWork
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

log = logging.getLogger("moldau.controller")
REQUESTS: Final = "quorum"
FETCHES: Final = "quorum fetch"
"""Fetches use a separate connection: they wait at the leader, and a vote must not wait behind them."""

SHORTAGE_RETRY_MS: Final = 1_000
NO_ROOM: Final = "the files of the quorum cannot be written, retried every second"


class QuorumDriver:
    def __init__(
        self,
        quorum: Quorum,
        peers: Peers,
        clock: Clock,
        timers: Timers,
        flusher: Flusher,
        run_in_thread: RunInThread,
        on_fault: Callable[[Exception], None],
    ) -> None:
        """`on_fault` is called with what goes wrong in timers, responses and listeners. It stops the node: without its
        quorum it would be silent, and nobody would notice."""
        self._quorum = quorum
        self._metadata_log = cast(MetadataLog, quorum.log)
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._flusher = flusher
        self._run_in_thread = run_in_thread
        self._on_fault = on_fault
        self._listeners: list[QuorumListener] = []
        self._timer: Timer | None = None
        self._timer_deadline_ms = NEVER_MS
        self._flush_requested_to: int | None = None
        self._is_processing_output = False
        self._is_running = False
        self._is_waiting_for_room = False
        """Whether the last step lacked space or file descriptors, and is tried again soon."""
        self._shortages = FaultLog(log.error, clock)
        self._resigned: Promise[None] | None = None
        self.requests = self.responses = 0
        """Requests to other voters since the start, and their responses, for metrics."""
        self.commit_times = CommitTimes()

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        return self._metadata_log.log

    @property
    def leader_id(self) -> int:
        """The id of the leader; -1 while no leader is known."""
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
        """The offset at which this leader's epoch begins: earlier leaders wrote everything below it."""
        return self._quorum.epoch_start_offset

    @property
    def quorum(self) -> Quorum:
        return self._quorum

    def kraft_version(self) -> int:
        return self._quorum.kraft_version

    def leader_address(self) -> tuple[str, int] | None:
        """Return host and port of the leader's controller listener."""
        endpoint = self._quorum.leader_endpoint
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def majority_silent_ms(self) -> int:
        """Return for how long this leader has not heard from a majority of the voters; 0 if it is not the leader."""
        role = self._quorum.role
        return role.progress.silent_ms(self._clock.monotonic_ms()) if isinstance(role, Leader) else 0

    # --- actions and events -------------------------------------------------------------------------------------

    def add_listener(self, listener: QuorumListener) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        """Join the quorum. A quorum of one voter has its leader when this returns."""
        self._is_running = True
        self._quorum.start()
        self._process_output()

    def resign(self) -> Promise[None]:
        """Resign as leader. The promise is completed when another leader is known, or after the request timeout."""
        done: Promise[None] = Promise()
        if not self.is_leader or len(self._quorum.voters) == 1:
            self._guarded(self._quorum.resign)
            done.complete(None)
            return done
        self._resigned = done
        self._guarded(self._quorum.resign)
        self._timers.after_ms(self._quorum.settings.request_timeout_ms, self._finish_resigning)
        self._process_output()
        return done

    def stop(self) -> None:
        """Resign, if that was not done before, and send nothing from then on."""
        if not self._is_running:
            return
        self._quorum.resign()
        self._process_output()
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        self._finish_resigning()

    def halt(self) -> None:
        """Send nothing from now on, as if the node had crashed."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def append(self, values: Sequence[bytes]) -> int:
        """Append one batch as the leader and return the offset after it. Raise KafkaError: NOT_CONTROLLER if this node
        is not the leader or was stopped, KAFKA_STORAGE_ERROR if the disk fails; then it also steps down, so that
        another voter can lead."""
        if not self._is_running:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the node stops")
        try:
            end_offset = self._quorum.append(values)
        except StorageFault as fault:
            self._quorum.step_down()
            self._process_output()
            if fault.is_shortage:
                self._shortages(NO_ROOM, fault)
            else:
                self._on_fault(fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        self.commit_times.appended(end_offset, self._clock.monotonic_ms())
        self._process_output()
        return end_offset

    def answer(self, request: Message, version: int) -> Message | Promise[Any]:
        """Answer a request of one of the quorum's APIs. The response does not depend on the listener."""
        response = self._quorum.answer(request)
        self._process_output()
        return response

    def flushed(self) -> None:
        self._flush_requested_to = None
        if self._is_running:
            self._guarded(self._quorum.flushed)

    def flush_postponed(self, fault: StorageFault) -> None:
        """Let another voter lead, and try again: nothing is lost, but nothing can be committed either."""
        self._guarded(partial(self._wait_for_room, fault))

    def begin_snapshot(
        self, snapshot: SnapshotId, values: Iterable[bytes], last_contained_ms: int = 0
    ) -> SnapshotWork | None:
        """Return the work that writes a snapshot of everything below its end offset, with the voters at that offset;
        None if a snapshot at least as new exists."""
        assert snapshot.end_offset <= self.high_watermark, "a snapshot must not go beyond the high watermark"
        kraft_version, voters = self._quorum.voters_at(snapshot)
        return self._metadata_log.begin_snapshot(
            snapshot, values, self._clock.now_ms(),
            last_contained_ms=last_contained_ms, kraft_version=kraft_version, voters=voters,
        )  # fmt: skip

    def finish_snapshot(self, work: SnapshotWork) -> bool:
        """Take over a snapshot that is on disk. Return False if a newer one was received meanwhile."""
        return self._metadata_log.finish_snapshot(work, self._clock.now_ms())

    # --- output of the machine ----------------------------------------------------------------------------------

    def _process_output(self) -> None:
        """Process the machine's output until there is none; then request a flush and set the timer."""
        if self._is_processing_output:
            return  # a listener's callback; the caller's loop processes its output
        self._is_processing_output = True
        try:
            while self._drain():
                pass
        finally:
            self._is_processing_output = False
        if self._is_running:
            self._request_flush()
            self._set_timer()

    def _drain(self) -> bool:
        quorum = self._quorum
        outgoing, replies, news = quorum.take_outgoing(), quorum.take_replies(), quorum.take_news()
        received = quorum.take_received()
        for call in outgoing:
            self._send(call)
        for download in received:
            self._check(download)
        for promise, response in replies:
            self._timers.soon(partial(promise.complete, response))
        for each in news:
            try:
                self._notify(each)
            except Exception as fault:  # the caller may handle a request of another node, which has no part in it
                self._on_fault(fault)
        return bool(outgoing or received or replies or news)

    def _send(self, call: OutgoingRequest) -> None:
        if not self._is_running:
            return
        purpose = FETCHES if call.api in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT) else REQUESTS
        self.requests += 1
        peer = self._peers.to(call.to.host, call.to.port, purpose)
        peer.ask(call.api, call.request, call.timeout_ms, call.version).then(partial(self._on_response, call))

    def _on_response(self, call: OutgoingRequest, response: Message | KafkaError) -> None:
        self.responses += not isinstance(response, KafkaError)
        if self._is_running:
            self._guarded(lambda: self._quorum.on_response(call, response))

    def _check(self, download: SnapshotDownload) -> None:
        verdict: list[bool] = []

        def checked(fault: StorageFault | None) -> None:
            if fault is not None and not fault.is_shortage:
                self._on_fault(fault)
                return
            if fault is not None:
                self._shortages("a snapshot of the metadata cannot be stored, so it is fetched again", fault)
            if self._is_running:
                self._guarded(lambda: self._quorum.on_snapshot_checked(download, verdict == [True]))

        self._run_in_thread(lambda: verdict.append(download.check())).then(checked)

    def _notify(self, news: News) -> None:
        if isinstance(news, Committed):
            self.commit_times.committed(news.high_watermark, self._clock.monotonic_ms())
        elif isinstance(news, NoLongerLeading):
            self.commit_times.forget()
        for listener in self._listeners:
            match news:
                case Leading(epoch):
                    listener.leading(epoch)
                case NoLongerLeading():
                    listener.no_longer_leading()
                case LeaderChanged(leader_id, epoch):
                    listener.leader_changed(leader_id, epoch)
                case Committed(high_watermark):
                    listener.committed(high_watermark)
        if isinstance(news, LeaderChanged) and news.leader_id >= 0:
            self._finish_resigning()

    def _finish_resigning(self) -> None:
        resigned, self._resigned = self._resigned, None
        if resigned is not None:
            resigned.complete(None)

    def _request_flush(self) -> None:
        log = self._metadata_log
        if log.flushed_offset < log.end_offset and self._flush_requested_to != log.end_offset:
            self._flush_requested_to = log.end_offset
            self._flusher.request(self)

    def _set_timer(self) -> None:
        # Without room, a deadline that has passed may stay: the machine is polled when the step is tried again.
        deadline_ms = NEVER_MS if self._is_waiting_for_room else self._quorum.deadline_ms
        if deadline_ms == self._timer_deadline_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_deadline_ms = deadline_ms
        if deadline_ms < NEVER_MS:
            self._timer = self._timers.after_ms(max(0, deadline_ms - self._clock.monotonic_ms()), self._poll)

    def _poll(self) -> None:
        self._timer, self._timer_deadline_ms = None, NEVER_MS
        if self._is_running:
            self._guarded(self._quorum.poll)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step that has no caller to raise to: what goes wrong goes to `on_fault`."""
        try:
            try:
                step()
            except StorageFault as fault:
                if not fault.is_shortage:
                    raise
                self._wait_for_room(fault)
            self._process_output()
        except Exception as fault:
            self._on_fault(fault)

    def _wait_for_room(self, fault: StorageFault) -> None:
        """Step down, and try again later. The machine writes its state before it changes, so nothing is half done."""
        self._shortages(NO_ROOM, fault)
        if self.is_leader:
            self._quorum.step_down()
        if not self._is_waiting_for_room:
            self._is_waiting_for_room = True
            self._timers.after_ms(SHORTAGE_RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._is_waiting_for_room = False
        self._flush_requested_to = None
        self._poll()
