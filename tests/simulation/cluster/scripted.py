"""Clients that run a script: a generator that yields requests and pauses, and continues with the responses."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from cluster.client import REQUEST_TIMEOUT_MS, ClusterClient
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

T = TypeVar("T")
Then = Callable[[Any], None]
Ask = Callable[[Then], None]
Script = Generator[Ask, Any, T]


class ScriptedClient(ClusterClient):
    def play(self, script: Script[None]) -> None:
        def resume(value: Any = None) -> None:
            try:
                request = script.send(value)
            except StopIteration:
                return
            request(resume)

        resume()

    def pause(self, delay_ms: int) -> Ask:
        return lambda then: self.later(delay_ms, lambda: then(None))

    def pause_after(self, failures: int) -> Ask:
        return lambda then: self.retry(lambda: then(None), failures)

    def request(
        self,
        node_id: int,
        api: ApiKey,
        version: int,
        request: Message,
        purpose: str,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Ask:
        return lambda then: self.ask(node_id, api, version, request, then, purpose, timeout_ms)
