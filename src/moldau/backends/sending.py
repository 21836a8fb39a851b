"""Sends rows to a backend with threads, by the decisions of `policy.py`.

The caller's thread cuts rows into chunks; each of `parallel` threads has an object of the backend, takes a chunk and
keeps it until its rows are taken, refused or given up. At most `parallel` chunks wait, so a slow backend makes the
caller wait and not the memory grow. Every pause is a wait for a condition: the end of the caller ends it at once.
"""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.error import URLError

from moldau.backends.delivery import Delivery
from moldau.backends.interface import Away, Backend, Failed, Refused, Retry, Row
from moldau.backends.policy import GiveUp, Go, Outage, Traffic, Wait

CLOSE_S: Final = 5.0
"""How long the end waits for threads that are writing, after an error."""
REASON_LENGTH_MAX: Final = 300
UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH})


class BackendGivenUp(Exception):
    """The backend was away for longer than `retry_for`."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A row that is not delivered, and why."""

    row: Row
    reason: str


@dataclass(slots=True)
class _Chunk:
    rows: list[Row]
    attempt: int = 1
    failed_since_s: float | None = None


@dataclass(slots=True)
class Sending:
    """The delivery of the rows of one task."""

    make: Callable[[], Backend]
    delivery: Delivery
    traffic: Traffic
    on_delivered: Callable[[Sequence[Row]], None] = lambda rows: None
    """Called in any thread, one at a time."""
    on_outage: Callable[[Outage | None], None] = lambda outage: None
    """Called when the circuit opens, has another reason, or closes; one at a time."""
    on_retries: Callable[[int, Retry], None] = lambda rows, error: None
    """Called when rows are to be tried again, with their number and the error of the last; one at a time."""
    clock: Callable[[], float] = time.monotonic
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _work: threading.Condition = field(init=False)
    """Threads without a chunk wait for it."""
    _room: threading.Condition = field(init=False)
    """The caller waits for it."""
    _calm: threading.Condition = field(init=False)
    """Threads with a chunk that may not send now wait for it."""
    _chunks: deque[_Chunk] = field(default_factory=deque)
    _dead: deque[Dead] = field(default_factory=deque)
    _threads: list[threading.Thread] = field(default_factory=list)
    _busy: int = 0
    """How many threads have a chunk."""
    _waiting: int = 0
    """How many of these wait for permission."""
    _is_over: bool = False
    _error: BaseException | None = None
    _outage_told: Outage | None = None

    def __post_init__(self) -> None:
        self._work, self._room, self._calm = (threading.Condition(self._lock) for _ in range(3))

    def send(self, rows: Iterable[Row]) -> Iterator[Dead]:
        """Send all rows; yield those that are not delivered, as soon as that is known. Raises what must fail the query:
        BackendGivenUp, Misconfigured, and unexpected errors of the backend."""
        try:
            for chunk in _chunks(rows, self.delivery.batch_rows):
                self._put(chunk)
                yield from self._take_dead()
            with self._lock:
                while self._error is None and (self._chunks or self._busy):
                    self._room.wait()
                self._raise_error()
            yield from self._take_dead()
        finally:
            self._end()

    def _put(self, chunk: _Chunk) -> None:
        with self._lock:
            if len(self._threads) < self.delivery.parallel and self._busy + len(self._chunks) >= len(self._threads):
                name = f"backend {len(self._threads)}"
                thread = threading.Thread(target=self._run, args=(len(self._threads),), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            while self._error is None and len(self._chunks) >= self.delivery.parallel:
                self._room.wait()
            self._raise_error()
            self._chunks.append(chunk)
            self._work.notify()

    def _take_dead(self) -> Iterator[Dead]:
        while self._dead:
            yield self._dead.popleft()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            self._wake_all()
        deadline_s = time.monotonic() + (CLOSE_S if self._error is None else 0.0)
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _wake_all(self) -> None:
        for condition in (self._work, self._room, self._calm):
            condition.notify_all()

    # --- one thread -------------------------------------------------------------------------------------------------

    def _run(self, sender: int) -> None:
        session = _Session(self.make)
        try:
            while (chunk := self._next()) is not None:
                self._deliver(sender, session, chunk)
                with self._lock:
                    self._busy -= 1
                    self._room.notify()
        except BaseException as error:  # raised again by `send`
            with self._lock:
                self._error = self._error or error
                self._wake_all()
        finally:
            session.close()

    def _next(self) -> _Chunk | None:
        with self._lock:
            while not self._chunks and not self._is_over:
                self._work.wait()
            if self._is_over:
                return None
            self._busy += 1
            self._room.notify()
            return self._chunks.popleft()

    def _deliver(self, sender: int, session: _Session, chunk: _Chunk) -> None:
        """Return when no row of the chunk is left, or when the end has come."""
        while chunk.rows:
            permission = self._permission(sender, len(chunk.rows))
            if permission is None:
                return
            if isinstance(permission, GiveUp):
                self._give_up(chunk, permission)
                return
            self._note(sender, chunk, session.write(chunk.rows))

    def _permission(self, sender: int, rows: int) -> Go | GiveUp | None:
        """Wait for the permission to send; None at the end."""
        with self._lock:
            self._waiting += 1
            try:
                while not self._is_over:
                    decision = self.traffic.permission(sender, rows, self.clock(), self._waiting > 1)
                    if not isinstance(decision, Wait):
                        return decision
                    self._calm.wait(decision.seconds)
                return None
            finally:
                self._waiting -= 1

    def _note(self, sender: int, chunk: _Chunk, failures: Sequence[Failed]) -> None:
        """Take delivered and refused rows out of the chunk; wait for the next attempt of the others."""
        failed = {failure.index for failure in failures}
        delivered = [row for index, row in enumerate(chunk.rows) if index not in failed]
        retried = [(chunk.rows[each.index], each.error) for each in failures if isinstance(each.error, Retry)]
        with self._lock:
            for failure in failures:
                if isinstance(failure.error, Refused):
                    self._dead.append(Dead(chunk.rows[failure.index], one_line(failure.error)))
            if delivered:
                self.on_delivered(delivered)
            if len(retried) < len(chunk.rows):
                self.traffic.succeeded()
                self._tell_outage()
            chunk.rows = [row for row, _ in retried]
            if retried:
                self._retry(sender, chunk, retried[0][1])

    def _retry(self, sender: int, chunk: _Chunk, error: Retry) -> None:
        now_s = self.clock()
        if chunk.failed_since_s is None:
            chunk.failed_since_s = now_s
        keys = {row.key for row in chunk.rows[:2]}
        verdict = self.traffic.failed(sender, keys, chunk.attempt, chunk.failed_since_s, error, now_s)
        self._tell_outage()
        if isinstance(verdict, GiveUp):
            self._give_up(chunk, verdict)
            return
        self.on_retries(len(chunk.rows), error)
        chunk.attempt += verdict.counts
        deadline_s = now_s + verdict.seconds
        while not self._is_over and (left_s := deadline_s - self.clock()) > 0:
            self._calm.wait(left_s)

    def _give_up(self, chunk: _Chunk, verdict: GiveUp) -> None:
        if verdict.is_outage and self.delivery.give_up == "fail":
            raise BackendGivenUp(verdict.reason)
        with self._lock:
            self._dead.extend(Dead(row, verdict.reason) for row in chunk.rows)
            chunk.rows = []

    def _tell_outage(self) -> None:
        """Tell the caller what has changed, and wake the senders after each trial: one of them makes the next."""
        if self.traffic.outage is not None or self._outage_told is not None:
            self._calm.notify_all()
        if self.traffic.outage != self._outage_told:
            self._outage_told = self.traffic.outage
            self.on_outage(self._outage_told)


@dataclass(slots=True)
class _Session:
    """An object of the backend, made and opened before its first rows."""

    make: Callable[[], Backend]
    backend: Backend | None = None

    def write(self, rows: list[Row]) -> list[Failed]:
        """Return the rows that were not taken."""
        try:
            if self.backend is None:
                backend = self.make()
                backend.open()
                self.backend = backend
            return [_checked(failure, len(rows)) for failure in self.backend.write(rows) or ()]
        except (Refused, Retry) as error:
            return [Failed(index, error) for index in range(len(rows))]
        except OSError as error:
            failure = retry_of(error)
            return [Failed(index, failure) for index in range(len(rows))]

    def close(self) -> None:
        if self.backend is not None:
            self.backend.close()


def _checked(failure: Failed, rows: int) -> Failed:
    """Return what a backend says about one of its rows. Raises TypeError for what is neither Refused nor Retry."""
    error = failure.error
    if not 0 <= failure.index < rows:
        raise TypeError(f"Failed has the index {failure.index!r}, and write() was called with {rows} rows")
    if not isinstance(error, Refused | Retry | OSError):
        raise TypeError(f"Failed has {type(error).__name__}, which is no Refused, Retry or OSError: {one_line(error)}")
    return Failed(failure.index, retry_of(error)) if isinstance(error, OSError) else failure


def retry_of(error: OSError) -> Retry:
    """Return what an error of the network says: nobody is there, for any row, or this attempt failed."""
    if isinstance(error, URLError) and isinstance(error.reason, OSError):
        return retry_of(error.reason)
    is_cut = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    is_away = isinstance(error, ConnectionRefusedError | socket.gaierror | ssl.SSLError) and not is_cut
    return Away(one_line(error)) if is_away or error.errno in UNREACHABLE else Retry(one_line(error))


def one_line(error: BaseException) -> str:
    """Return the message of an error as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError):
        text = f"{type(error).__name__}: {error.strerror or text}"
    return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"


def _chunks(rows: Iterable[Row], size: int) -> Iterator[_Chunk]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield _Chunk(chunk)
            chunk = []
    if chunk:
        yield _Chunk(chunk)
