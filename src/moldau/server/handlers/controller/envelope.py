"""Envelope v0. A client's request that a broker forwards: unpacked, given to the controller, its response packed again.

The envelope's error code says whether the controller could be asked; the result of the request is inside. The broker
has authorized the client's request, and tells whose it is; here only the broker itself is authorized. Quotas and
delegation tokens need the client's principal and client id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import CONTROLLER_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.controller.channel import AskController
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ACTION
from moldau.security.principal_data import read_principal
from moldau.security.principals import Client
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.codec import decode_from
from moldau.wire.frames import Framing, read_request_header
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

log = logging.getLogger("moldau.server")
OVERHEAD_BYTES_MAX: Final = 64 << 10
"""The largest size of an envelope without the request in it: the name of a certificate may be long."""


class Envelope(Handler):
    api = ApiKey.ENVELOPE
    versions = (0, 0)
    needs = (CLUSTER_ACTION,)
    is_on_brokers = False
    is_on_controllers = True
    request_bytes_max = CONTROLLER_REQUEST_BYTES_MAX + OVERHEAD_BYTES_MAX

    def __init__(self, forward: AskController, forwarded: Callable[[int], type[Handler] | None]) -> None:
        """`forwarded` returns what brokers forward of the API with this key; None if they do not forward it."""
        self._ask = forward
        self._forwarded = forwarded

    def answer(self, envelope: EnvelopeRequest, caller: Caller) -> EnvelopeResponse | Promise[EnvelopeResponse]:
        if not caller.access.allows(CLUSTER_ACTION):
            return EnvelopeResponse(error_code=denied(CLUSTER_ACTION).code)
        data = memoryview(envelope.request_data)
        try:
            header, position = read_request_header(data)
            api = self._forwardable_api(header.api_key, header.api_version)
            request, _ = decode_from(request_class(api), data, header.api_version, position)
            client = _client(envelope, header.client_id)
        except MalformedData:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)

        def wrap_response(response: Any) -> EnvelopeResponse:
            if isinstance(response, KafkaError):
                return EnvelopeResponse(error_code=response.code)
            try:
                frame = Framing(api, header.api_version).frame(header.correlation_id, response)
            except Exception:  # whoever completes the promise has others to answer
                INTERNAL_ERRORS.log(log, "the reply to a forwarded %s cannot be written", api.name)
                return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            return EnvelopeResponse(bytes(frame[4:]))

        return self._ask(api, request, header.api_version, client).map(wrap_response)

    def _forwardable_api(self, key: int, version: int) -> ApiKey:
        """Return the API key; raise KafkaError for an API or version that brokers do not forward."""
        handler = self._forwarded(key)
        if handler is None or not handler.versions[0] <= version <= handler.versions[1]:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return handler.api


def _client(envelope: EnvelopeRequest, client_id: str | None) -> Client | None:
    """Return whose request it is; None if a broker sends it for itself, or is of an earlier release. Raise KafkaError
    if the principal cannot be read."""
    if envelope.request_principal is None:
        return None
    try:
        return Client(read_principal(envelope.request_principal), client_id or "")
    except MalformedData as malformed:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(malformed)) from None
