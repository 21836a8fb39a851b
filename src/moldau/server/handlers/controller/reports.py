"""BrokerRegistration v0–4, BrokerHeartbeat v0–2, AlterPartition v2–3, AllocateProducerIds v0: what brokers tell the
controller and ask of it for themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import ALTER_PARTITION_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.server.handlers.forwarded import Ask
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.wire.schema import Message

REPORTS: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.BROKER_REGISTRATION: (0, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
}


class Report:
    """One such API. `heard_of` is told which broker speaks over which connection."""

    def __init__(self, api: ApiKey, versions: tuple[int, int], ask: Ask, heard_of: Callable[[int, str], None]) -> None:
        self.api = api
        self.versions = versions
        self._ask = ask
        self._heard_of = heard_of
        is_long = api is ApiKey.ALTER_PARTITION
        self.request_bytes_max = ALTER_PARTITION_BYTES_MAX if is_long else QUORUM_REQUEST_BYTES_MAX

    def answer(self, request: Message, caller: Caller) -> Promise[Message]:
        reply = self._ask(self.api, request, caller.version)
        if isinstance(request, BrokerHeartbeatRequest):
            broker_id = request.broker_id
            return reply.map(lambda given: self._beaten(given, broker_id, caller.address))
        return reply.map(self._response)

    def _beaten(self, given: Any, broker_id: int, address: str) -> Message:
        response = self._response(given)
        if getattr(response, "error_code", 0) == ErrorCode.NONE:
            self._heard_of(broker_id, address)
        return response

    def _response(self, given: Any) -> Message:
        if isinstance(given, KafkaError):
            refused: Any = response_class(self.api)()
            refused.error_code = given.code
            given = refused
        assert isinstance(given, Message)
        return given


def reports(ask: Ask, heard_of: Callable[[int, str], None]) -> list[Report]:
    return [Report(api, versions, ask, heard_of) for api, versions in REPORTS.items()]
