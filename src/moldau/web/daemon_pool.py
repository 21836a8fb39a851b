"""Threads for requests that do not hold up the end of the process.

Python waits at its end for the threads of a `ThreadPoolExecutor`. These may wait for a cluster that does not answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(Executor):
    """An executor whose threads are daemons. They are started when there is work for them."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max, self._name = threads_max, name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        """None ends a thread."""
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = False

    def submit(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._stopped:
                raise RuntimeError("its threads have ended")
            self._work.put((future, lambda: function(*arguments, **named)))
            if len(self._threads) < self._threads_max:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._stopped = True
            if cancel_futures:
                self._cancel()
            for _ in self._threads:
                self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel(self) -> None:
        """Cancel what has not begun."""
        while True:
            try:
                work = self._work.get_nowait()
            except Empty:
                return
            if work is not None:
                work[0].cancel()

    def _run(self) -> None:
        while self._do_next():  # a call for each, so that nothing of a request is kept until the next one comes
            pass

    def _do_next(self) -> bool:
        work = self._work.get()
        if work is None:
            return False
        future, call = work
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
        return True
