"""Keeps the queries of a pipeline running: starts them, monitors them, restarts failed ones, stops them cleanly.

A query is any object with the interface of Spark's StreamingQuery; nothing here imports Spark. One thread checks all of
them in turn. Signal handlers and the stop file only set a flag that this thread reads: a signal handler must not call
`Event.set`, as the thread that it interrupts may hold the event's lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from moldau.backends.progress_files import Tally
from moldau.base.errors import StorageFault
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.queries import DEAD_LETTERS, sinks_of
from moldau.pipelines.running.bad_records import BadRecords
from moldau.pipelines.running.display import BATCH, Display, waiting_message
from moldau.pipelines.running.ends import Ends, SlotLag
from moldau.pipelines.running.failure_log import FailureLog
from moldau.pipelines.running.failures import Failure, Kind, failure_of
from moldau.pipelines.running.progress import Gauge, LogEnds, Offsets, QueryStatus, RunState, RunStatus
from moldau.pipelines.running.restarting import Restarts
from moldau.pipelines.running.state_directory import StateDirectory
from moldau.pipelines.running.stop_request import Stop

LOOK_EVERY_S: Final = 0.2
STATUS_EVERY_S: Final = 1.0
STOP_LOOK_EVERY_S: Final = 0.03
"""Spark takes longer than this to plan a batch: a query stopped after one batch has written nothing of the next."""
IDLE: Final = "Waiting"
"""Spark's status message starts with this while a query waits for data, or for its next trigger."""
GETTING_OFFSETS_LOOKS: Final = 5
"""A query without data gets offsets nearly all the time: if so many looks in a row see that, it has started."""
STARTING_MAX: Final = 1
"""How many queries may be starting at once, from the start to the first job. Each needs Python processes, which Spark
gives ten seconds to answer. And if two queries plan their first batches at the same time, Spark sometimes breaks an
object that both plans share: "Task not serializable", as long as those plans are used."""
CONTINUOUS: Final = "continuous"
"""The mode of a run whose queries do not end by themselves."""
LAST_BATCH_S: Final = 30.0
"""How long a stop waits for batches that make no progress."""
SLOW: Final = "this machine is slow: Spark gave up on a Python process that took too long; its query is started again"


class Query(Protocol):
    """The part of pyspark's StreamingQuery that is used here."""

    @property
    def isActive(self) -> bool: ...

    @property
    def status(self) -> Mapping[str, Any]: ...

    @property
    def lastProgress(self) -> Mapping[str, Any] | None: ...

    @property
    def recentProgress(self) -> Sequence[Mapping[str, Any]]: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A query that Run starts and restarts."""

    name: str
    start: Callable[[], Query]
    has_submitted: Callable[[Query], bool] = lambda query: True
    """Returns whether it has submitted a Spark job: then its first batch is planned."""
    discard_plan: Callable[[], None] = lambda: None
    """Discards the plan of the query: the next start makes a new one."""
    position: Callable[[], Offsets] = dict
    """Returns the position in its checkpoint."""
    waiting: Callable[[], str | None] = lambda: None
    """Returns why its batch makes no progress, if it waits for a backend."""
    tallies: Callable[[], Mapping[str, Tally]] = dict
    """Returns what became of the rows for those of its sinks that are backends."""


class Broker(Protocol):
    """The part of BrokerWatch that a run uses."""

    @property
    def silence(self) -> str | None: ...

    @property
    def cluster_id(self) -> str | None: ...

    def exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None: ...

    def last_exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None: ...


class NoBroker:
    """For a batch run, whose queries have no positions."""

    silence: str | None = None
    cluster_id: str | None = None

    def exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None:
        return None

    last_exchange = exchange


class Slots(Protocol):
    """The part of DatabaseWatch that a run uses."""

    def new_warnings(self) -> Sequence[str]: ...

    def final_lines(self) -> Sequence[str]: ...

    def lags(self) -> Mapping[str, SlotLag]: ...


class NoSlots:
    """For a run that reads no database's log."""

    def new_warnings(self) -> Sequence[str]:
        return ()

    final_lines = new_warnings

    def lags(self) -> Mapping[str, SlotLag]:
        return {}


@dataclass(slots=True)
class _Watched:
    job: Job
    gauge: Gauge
    restarts: Restarts
    query: Query | None = None
    start_at_s: float | None = None
    """When to start it, if it is not running."""
    looks_getting_offsets: int = 0
    """How many looks in a row saw it getting offsets."""

    @property
    def is_over(self) -> bool:
        return self.query is None and self.start_at_s is None


@dataclass(slots=True)
class Run:
    """One run of a pipeline, from the first start of its queries to their final status."""

    jobs: Sequence[Job]
    directory: StateDirectory
    display: Display
    stop: Stop
    status: RunStatus
    """At first with the facts about the run that are known before it begins."""
    chance: Callable[[], float]
    """Returns a random number in [0, 1)."""
    debug: bool = False
    pulse: Callable[[], object] = lambda: None
    """Returns a value that changes as long as batches make progress."""
    broker: Broker = field(default_factory=NoBroker)
    bad_records: BadRecords = field(default_factory=lambda: BadRecords((), set()))
    masked: Callable[[str], str] = str
    """Returns a text without the passwords of the pipeline."""
    slots: Slots = field(default_factory=lambda: NoSlots())
    ends_of: Callable[[str], Ends] = lambda query: Ends(sink_names=sinks_of(query))
    """Returns the sources and sinks of a query."""
    left_out: Sequence[Gauge] = ()
    """Queries of the pipeline that are not part of this run: their growing lag is shown."""
    _watched: list[_Watched] = field(default_factory=list)
    _published_s: float = 0.0
    _is_status_lost: bool = False
    _has_reported_slowness: bool = False
    _is_refused: bool = False
    """Too many records were bad."""
    _waiting: str | None = None
    """The message while a requested stop waits for batches."""

    def to_the_end(self) -> RunStatus:
        """Run until all queries have finished, one has failed permanently, or a stop is requested."""
        now_s = time.monotonic()
        for job in self.jobs:
            gauge = Gauge(QueryStatus(name=job.name), dict(job.position()), self.ends_of(job.name))
            self._watched.append(_Watched(job, gauge, Restarts(self.chance), start_at_s=now_s))
        tick = threading.Event()
        with self.display:
            self._set_state("running")
            try:
                while not (self._must_stop() or all(each.is_over for each in self._watched)):
                    for each in self._watched:
                        self._check_query(each)
                    self._update_if_due()
                    tick.wait(LOOK_EVERY_S)
                self._wind_down(tick)
            finally:
                self._stop_all()
                final_lines_of_slots = self.slots.final_lines()
                self._update_lag(self.broker.last_exchange)
                self._check_bad_records(is_over=True)
                self._add_final_lines(final_lines_of_slots)
                self._set_state(self._final_state(), self.status.message)
        return self.status

    # --- one query --------------------------------------------------------------------------------------------------

    def _check_query(self, each: _Watched) -> None:
        if each.query is None:
            if self._may_start(each):
                self._start(each)
        elif not each.query.isActive:
            self._on_end(each, each.query)
        elif each.gauge.status.state == "starting":
            self._read_progress(each, each.query)

    def _may_start(self, each: _Watched) -> bool:
        if each.start_at_s is None or time.monotonic() < each.start_at_s or self.status.state != "running":
            return False
        starting = [one for one in self._watched if one.query is not None and one.gauge.status.state == "starting"]
        return len(starting) < STARTING_MAX

    def _start(self, each: _Watched) -> None:
        each.start_at_s, each.looks_getting_offsets = None, 0
        each.gauge.set_state("starting")
        try:
            each.query = each.job.start()
        except Exception as error:  # any error is reported, and the start is retried if that may help
            self._on_failure(each, error)

    def _on_end(self, each: _Watched, query: Query) -> None:
        self._read_progress(each, query)
        each.query = None
        error = query.exception()
        if error is not None:
            self._on_failure(each, error)
        else:
            was_stopped = self.status.state == "stopping" and self.status.mode == CONTINUOUS
            each.gauge.set_state("stopped" if was_stopped else "finished")

    def _on_failure(self, each: _Watched, error: Exception) -> None:
        failure = self._masked_failure(error)
        status = each.gauge.status
        pause_s = each.restarts.pause_after(failure, status.batch_id, each.gauge.last_report, time.monotonic())
        FailureLog(self.directory.failures, utc_now, self.masked).write(each.job.name, failure.message, error)
        if self.debug:
            self.display.say(self.masked(f"{each.job.name}: {error}"))
        if pause_s is None or self.status.state != "running":
            each.gauge.set_state("failed", last_error=failure.message)
            self._add_to_message(f"{each.job.name}: {failure.message}")
            self._set_state("stopping", self.status.message)
            return
        if failure.kind is Kind.UNKNOWN:
            each.job.discard_plan()
        if failure.is_slowness and not self._has_reported_slowness:
            self._has_reported_slowness = True
            self.display.say(SLOW)
        each.start_at_s = time.monotonic() + pause_s
        each.gauge.set_state("restarting", last_error=failure.message, restarts=status.restarts + 1)
        self.display.say(f"{each.job.name}: {failure.message}; starting it again in {pause_s:.1f} s")

    def _read_progress(self, each: _Watched, query: Query) -> None:
        """Read all recent reports only if some batches were missed, because each report costs a call into the JVM."""
        last, last_read = query.lastProgress, each.gauge.status.batch_id
        if last is None:
            reports: Sequence[Mapping[str, Any]] = ()
        elif last_read is not None and last["batchId"] <= last_read + 1:
            reports = [last]
        else:
            reports = query.recentProgress
        each.gauge.add_reports(reports, time.time())
        each.gauge.add_tallies(each.job.tallies(), time.time())
        if each.gauge.status.state == "starting" and self._has_started(each, query):
            each.gauge.set_state("running")

    def _check_waiting(self, each: _Watched) -> None:
        waiting = None if each.query is None else each.job.waiting()
        before = each.gauge.status.waiting
        waiting = None if waiting is None else self.masked(waiting)
        if waiting is not None and waiting != before:
            self.display.say(f"{each.job.name}: {waiting}")
        elif waiting is None and before is not None and each.query is not None:
            self.display.say(f"{each.job.name}: the backend takes rows again")
        each.gauge.set_waiting(waiting)

    def _has_started(self, each: _Watched, query: Query) -> bool:
        message = str(query.status["message"])
        each.looks_getting_offsets = each.looks_getting_offsets + 1 if message.startswith("Getting") else 0
        is_computing = message.startswith("Processing") and each.job.has_submitted(query)
        return message.startswith(IDLE) or is_computing or each.looks_getting_offsets >= GETTING_OFFSETS_LOOKS

    def _masked_failure(self, error: Exception) -> Failure:
        failure = _classified(error)
        return replace(failure, message=self.masked(failure.message))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _must_stop(self) -> bool:
        if self.stop.is_requested(self.directory) and self.status.state == "running":
            self._waiting = waiting_message([each.job.name for each in self._watched if each.query])
            self._set_state("stopping", self._waiting)
        return self.status.state == "stopping"

    def _wind_down(self, tick: threading.Event) -> None:
        """Stop each query when its batch is done, or all at once if a second stop is requested or it takes too long."""
        for each in self._watched:
            each.start_at_s = None
        pulse, deadline_s = self.pulse(), time.monotonic() + LAST_BATCH_S
        going = {each.job.name: (each, each.query, _last_batch(each.query)) for each in self._watched if each.query}
        while going:
            if (now := self.pulse()) != pulse:
                pulse, deadline_s = now, time.monotonic() + LAST_BATCH_S
            hurry = self.stop.at_once or time.monotonic() > deadline_s
            for each, query, batch in list(going.values()):
                is_done = not _is_writing(query) or _last_batch(query) != batch
                if hurry or is_done or each.job.waiting() is not None:
                    self._stop_one(each, query)
                    del going[each.job.name]
            if self._waiting is not None and self.status.message == self._waiting:
                self._waiting = waiting_message(list(going))
                self.status = replace(self.status, message=self._waiting)
            self._update_if_due()
            tick.wait(STOP_LOOK_EVERY_S)
        if self._waiting is not None and self.status.message == self._waiting:
            self.status = replace(self.status, message=self.stop.reason)

    def _stop_all(self) -> None:
        for each in self._watched:
            each.start_at_s = None
            if each.query is not None:
                self._stop_one(each, each.query)
            elif each.gauge.status.state in ("starting", "restarting"):  # it will not be started any more
                each.gauge.set_state("stopped")

    def _stop_one(self, each: _Watched, query: Query) -> None:
        """Stop a query, unless it has just ended by itself: then it has finished or failed."""
        try:
            if not query.isActive:
                self._on_end(each, query)
                return
            query.stop()
            each.gauge.set_waiting(None)
            self._read_progress(each, query)
            # A batch write has a report if it ended before it could be cancelled.
            has_finished = self.status.mode == BATCH and query.lastProgress is not None
            each.gauge.set_state("finished" if has_finished else "stopped")
        except Exception as error:  # such as a JVM that is gone; the other queries and the run must end all the same
            message = self._masked_failure(error).message
            each.gauge.set_state("failed", last_error=message)
            self._add_to_message(f"{each.job.name} does not stop: {message}")
        each.query = None

    def _final_state(self) -> RunState:
        states = {each.gauge.status.state for each in self._watched}
        if "failed" in states or self._is_refused:
            return "failed"
        return "finished" if states <= {"finished"} else "stopped"

    # --- the status -------------------------------------------------------------------------------------------------

    def _check_bad_records(self, is_over: bool) -> None:
        queries = [each.gauge.status for each in self._watched]
        if not is_over:
            for warning in self.bad_records.new_warnings(queries):
                self.display.say(warning)
        refusal = self.bad_records.refusal(queries, is_over)
        if refusal is not None and not self._is_refused:
            self._is_refused = True
            self._add_to_message(refusal)
            self._set_state("stopping", self.status.message)

    def _add_final_lines(self, lines_of_slots: Sequence[str]) -> None:
        queries = [each.gauge.status for each in self._watched]
        bad_records = () if self._is_refused else self.bad_records.summary(queries)
        self._add_to_message(*bad_records, *final_lines(queries, self.status.mode), *lines_of_slots)

    def _add_to_message(self, *lines: str) -> None:
        """Add lines to the message. They replace one that only says what a stop waits for."""
        if lines:
            kept = () if self.status.message in (None, self._waiting) else (self.status.message,)
            self.status = replace(self.status, message="\n".join([*kept, *lines]))

    def _set_state(self, state: RunState, message: str | None = None) -> None:
        self.status = replace(self.status, state=state, message=message)
        self._publish_status()

    def _update_if_due(self) -> None:
        if time.monotonic() - self._published_s >= STATUS_EVERY_S:
            for each in self._watched:
                if each.query is not None:
                    self._read_progress(each, each.query)
                self._check_waiting(each)
            self._update_lag(self.broker.exchange)
            for warning in self.slots.new_warnings():
                self.display.say(warning)
            self._check_bad_records(is_over=False)
            self._publish_status()

    def _update_lag(self, exchange: Callable[[Mapping[str, Offsets]], LogEnds | None]) -> None:
        gauges = [*(each.gauge for each in self._watched), *self.left_out]
        ends = exchange({gauge.status.name: gauge.position for gauge in gauges})
        for gauge in gauges:
            gauge.compare(ends, time.time(), self.slots.lags())

    def _publish_status(self) -> None:
        self._published_s = time.monotonic()
        queries = (*(each.gauge.status for each in self._watched), *(gauge.status for gauge in self.left_out))
        cluster_id = self.broker.cluster_id
        self.status = replace(
            self.status, updated=utc_now(), queries=queries, note=self.broker.silence, cluster_id=cluster_id
        )
        self.display.show(self.status)
        try:
            self.directory.write_status(self.status.to_json())
            self._is_status_lost = False
        except StorageFault as fault:  # the queries do not need the file, but the user should know
            if not self._is_status_lost:
                self.display.say(f"`moldau pipeline status` shows old news: {fault}")
            self._is_status_lost = True


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _classified(error: Exception) -> Failure:
    if isinstance(error, PipelineError):
        return Failure(Kind.LASTING, str(error))
    return failure_of(f"{type(error).__name__}: {error}")


def _last_batch(query: Query) -> int | None:
    last = query.lastProgress
    return None if last is None else int(last["batchId"])


def _is_writing(query: Query) -> bool:
    """Return whether a batch is running that may write something, not only waiting for data."""
    status = query.status
    return query.isActive and bool(status["isTriggerActive"]) and str(status["message"]).startswith("Processing")


def final_lines(queries: Sequence[QueryStatus], mode: str) -> list[str]:
    """Return what the user should know at the end of a run, besides its bad records."""
    return [*_late(queries), *(_dead_letters(queries) if mode == BATCH else ())]


def _late(queries: Sequence[QueryStatus]) -> list[str]:
    """Return a line about late rows. Each task of Spark counts rows of the same window and key as one: "at least"."""
    late = [f"{query.name} at least {query.rows_late:,}" for query in queries if query.rows_late]
    return [f"rows that came later than the watermark allows were left out: {', '.join(late)}"] if late else []


def _dead_letters(queries: Sequence[QueryStatus]) -> list[str]:
    """Return a line per source with bad records. Of a batch, Spark reports only what was written."""
    written = {query.name: query.rows_out for query in queries if query.name.endswith(DEAD_LETTERS)}
    return [
        f"source {name.removesuffix(DEAD_LETTERS)}: {rows:,} records are bad; they are the rows of {name}"
        for name, rows in written.items()
        if rows
    ]
