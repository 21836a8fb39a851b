"""What users of the console share: the access of one user's sessions, the threads, the cookies of two consoles."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from harness.patience import PATIENCE_S, wait_until
from starlette.requests import Request

from moldau.console import sessions
from moldau.console.access import REQUESTS_MAX, Access
from moldau.console.call import Call, Endpoint
from moldau.console.collector.collector import Collector
from moldau.console.console import Console
from moldau.console.daemon_pool import CLUSTER_THREADS
from moldau.console.endpoints.topics import known_topic
from moldau.console.options import ConsoleOptions
from moldau.web.failures import ApiError

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


class RecordingAccess(Access):
    """An access that records whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_an_access_is_closed_with_the_last_session_of_its_user() -> None:
    console = Console(ConsoleOptions("localhost:1", SASL))
    access = RecordingAccess("localhost:1", SASL, "ann")
    first = console._begin_session("ann", access)
    second = console._begin_session("ann", access)
    console.sessions.end(first)
    assert (access.uses, access.is_closed) == (1, False)
    console.sessions.end(second)
    assert (access.uses, access.is_closed) == (0, True)


def test_an_access_that_gets_no_session_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(ConsoleOptions("localhost:1", SASL))
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 1)
    shared, new = RecordingAccess("localhost:1", SASL, "ann"), RecordingAccess("localhost:1", SASL, "ben")
    console._begin_session("ann", shared)
    for access in (shared, new):
        with pytest.raises(ApiError):
            console._begin_session("x", access)
    assert (shared.uses, shared.is_closed) == (1, False)
    assert (new.uses, new.is_closed) == (0, True)


def test_consoles_on_one_host_use_different_cookies() -> None:
    assert ConsoleOptions("b", port=8080).cookie != ConsoleOptions("b", port=8081).cookie


def test_one_user_does_not_take_all_threads() -> None:
    assert REQUESTS_MAX < CLUSTER_THREADS
    running, most = 0, 0
    lock, may_end = threading.Lock(), threading.Event()

    def handler(call: Call) -> dict[str, Any]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert may_end.wait(PATIENCE_S)
        with lock:
            running -= 1
        return {}

    async def ask_often() -> list[int]:
        console = Console(ConsoleOptions("localhost:1"))
        answer = console._answer(Endpoint("GET", "/x", handler))
        scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", "path_params": {}}
        asked = [asyncio.create_task(answer(Request(scope))) for _ in range(3 * REQUESTS_MAX)]
        await asyncio.to_thread(wait_until, lambda: running == REQUESTS_MAX, "all turns are taken")
        may_end.set()
        return [(await each).status_code for each in asked]

    assert asyncio.run(ask_often()) == [200] * (3 * REQUESTS_MAX)
    assert most == REQUESTS_MAX


def test_requests_for_an_unknown_topic_hurry_the_collector_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector("localhost:1", {})
    hurried: list[tuple[str, ...]] = []
    monkeypatch.setattr(collector, "hurry", lambda *steps: hurried.append(steps))
    collector._stopped = True  # no thread reads, so no request waits for one
    for _ in range(50):
        with pytest.raises(ApiError):
            known_topic(collector, "nowhere")
    assert hurried == [("topics",)]
