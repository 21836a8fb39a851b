"""Polls a running query and shows its progress, until the query ends or the user interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from moldau.spark.errors.sentences import function_error, in_short, worker_error
from moldau.spark.progress.screens import Screen, screen
from moldau.spark.progress.tally import Progress, Tally

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.5
STILL_RUNNING: Final = "the query continues; its stop() ends it"


def show(query: StreamingQuery, seconds: float | None, on: Screen | None = None) -> None:
    """See `moldau.spark.show_progress`."""
    on = on or screen()
    began_s = time.monotonic()
    tally = Tally(Progress(name=query.name or f"query {str(query.id)[:8]}"), time.time())
    with _interrupts() as interrupted:
        while not _is_over(query, tally):
            now_s = time.monotonic()
            on.show(tally.progress.line(), now_s)
            if interrupted.is_set() or (seconds is not None and now_s - began_s >= seconds):
                on.end(f"{tally.progress.line()} ({STILL_RUNNING})")
                return
            interrupted.wait(POLL_S)
    on.end(tally.progress.line())


def _is_over(query: StreamingQuery, tally: Tally) -> bool:
    is_active = query.isActive  # read first: if it has ended, the reports below are complete
    tally.take(_reports(query, tally.progress.batch_id), time.time())
    if is_active:
        return False
    error = query.exception()
    tally.set_state("failed" if error else "finished", reason(str(error)) if error else None)
    return True


def reason(text: str) -> str:
    """Why a query failed, in one line."""
    if found := worker_error(text):
        return found.sentence
    if trace := function_error(text):
        return trace.splitlines()[-1]
    return in_short(text)


def _reports(query: StreamingQuery, last_batch_id: int | None) -> Sequence[Mapping[str, Any]]:
    """Fetch all recent reports only if batches were missed: each report costs a call into the JVM."""
    last = query.lastProgress
    if last is None:
        return ()
    if last_batch_id is not None and last["batchId"] <= last_batch_id + 1:
        return [last]
    return query.recentProgress


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C or a notebook's interrupt. PySpark's own handler would cancel the query's jobs."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
