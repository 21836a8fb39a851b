"""The console stops also while requests wait for a cluster that does not answer."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from harness.patience import PATIENCE_S

from moldau.web.daemon_pool import DaemonPool

WAITING = """
import asyncio, threading
from moldau.console.live import Streams
from moldau.console.daemon_pool import Threads

threads = Threads()
streams = Streams(threads)
for pool in (threads._cluster, threads._memory, streams._tail_threads):
    begun = threading.Event()
    pool.submit(lambda: (begun.set(), threading.Event().wait()))
    begun.wait()
threads.stop()
streams.close()
"""


def test_the_process_exits_while_requests_wait() -> None:
    assert subprocess.run([sys.executable, "-c", WAITING], timeout=PATIENCE_S).returncode == 0


def test_a_pool_limits_its_threads_and_returns_results_or_exceptions() -> None:
    pool = DaemonPool(2, "few")
    together = threading.Barrier(2)
    waiting = [pool.submit(together.wait, PATIENCE_S) for _ in range(2)]
    assert sorted(each.result(PATIENCE_S) for each in waiting) == [0, 1]
    threads = {pool.submit(threading.get_ident).result(PATIENCE_S) for _ in range(20)}
    assert len(threads) <= 2
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(PATIENCE_S)
    pool.shutdown()


def test_a_pool_that_was_shut_down_refuses_calls_and_cancels_waiting_ones() -> None:
    pool = DaemonPool(1, "one")
    may_end = threading.Event()
    begun = pool.submit(may_end.wait, PATIENCE_S)
    waiting = pool.submit(threading.get_ident)
    pool.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    assert begun.result(PATIENCE_S)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError):
        pool.submit(threading.get_ident)
