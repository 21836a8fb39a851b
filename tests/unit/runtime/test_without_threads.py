"""Keys and certificates, which a node reads periodically, are read later if no thread can be started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from harness.tokens import Issuer

from moldau.runtime.jwks import JwksKeys
from moldau.runtime.node_tls import NodeTls
from moldau.security.sasl.oauthbearer.settings import JwksSettings
from moldau.testing.clock import FakeClock


class LoopWithoutThreads:
    def __init__(self) -> None:
        self.timers: list[FakeTimer] = []
        self.reads = 0

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> FakeTimer:
        self.timers.append(FakeTimer(self, partial(call, *arguments)))
        return self.timers[-1]

    def run_in_executor(self, executor: None, call: Callable[[], Any]) -> None:
        self.reads += 1
        raise RuntimeError("can't start new thread")

    def fire(self) -> None:
        (timer,) = self.timers
        self.timers.clear()
        timer.call()


class FakeTimer:
    def __init__(self, loop: LoopWithoutThreads, call: Callable[[], None]) -> None:
        self._loop = loop
        self.call = call

    def cancel(self) -> None:
        if self in self._loop.timers:
            self._loop.timers.remove(self)


def as_loop(loop: LoopWithoutThreads) -> asyncio.AbstractEventLoop:
    return cast(asyncio.AbstractEventLoop, loop)


def test_keys_are_read_later_if_no_thread_can_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_bytes(Issuer().key_set())
    keys = JwksKeys(JwksSettings(file.as_uri()), FakeClock())
    keys.read_first()
    loop = LoopWithoutThreads()
    keys.start(as_loop(loop))
    for _ in range(3):
        loop.fire()
    assert loop.reads == 3
    assert "can't start new thread; the last 1 keys stay in use" in caplog.text
    assert keys.read_for_unknown_key() is None, "a login must not wait for it"
    assert loop.reads == 4
    assert len(loop.timers) == 1


def test_certificates_are_checked_later_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = NodeTls({}, [], [])
    monkeypatch.setattr(tls, "_listeners", {"SSL": None})
    loop = LoopWithoutThreads()
    tls.start(as_loop(loop))
    for _ in range(3):
        loop.fire()
    assert loop.reads == 3
    assert len(loop.timers) == 1
