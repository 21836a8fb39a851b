"""Envelope v0. A client's request that a broker passes on: opened, put to the controller, and its answer put back.

Whether the controller could be asked at all is told on the envelope; what became of the request, inside it.
"""

from __future__ import annotations

from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import CONTROLLED_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.server.handlers.forwarded import FORWARDED, Ask
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.codec import decode_from
from moldau.wire.frames import Framing, read_request_header
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

OWN_BYTES_MAX: Final = 1 << 10
"""What an envelope is, besides what is in it."""


class Envelope:
    api = ApiKey.ENVELOPE
    versions = (0, 0)
    request_bytes_max = CONTROLLED_REQUEST_BYTES_MAX + OWN_BYTES_MAX

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def answer(self, ask: EnvelopeRequest, caller: Caller) -> EnvelopeResponse | Promise[EnvelopeResponse]:
        data = memoryview(ask.request_data)
        try:
            header, position = read_request_header(data)
            api = _passed_on(header.api_key, header.api_version)
            request, _ = decode_from(request_class(api), data, header.api_version, position)
        except MalformedData:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        except KafkaError as refused:
            return EnvelopeResponse(error_code=refused.code)

        def enclosed(given: Any) -> EnvelopeResponse:
            if isinstance(given, KafkaError):
                return EnvelopeResponse(error_code=given.code)
            frame = Framing(api, header.api_version).frame(header.correlation_id, given)
            return EnvelopeResponse(bytes(frame[4:]))

        return self._ask(api, request, header.api_version).map(enclosed)


def _passed_on(key: int, version: int) -> ApiKey:
    """Only what brokers pass on may come in an envelope."""
    low, high = FORWARDED.get(ApiKey(key), (0, -1)) if key in FORWARDED else (0, -1)
    if not low <= version <= high:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return ApiKey(key)
