"""What is looked up once for all requests of one API in one version."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moldau.base.limits import DEFAULT_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.security.quotas.mutations import STRICT_FROM_VERSION
from moldau.server.request_counts import RequestCounts
from moldau.wire.apis import APIS, ApiKey, request_class
from moldau.wire.codec import Decoder, Framer, Outgoing, decoder
from moldau.wire.frames import Framing
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from moldau.server.router import Caller, Handler

DECODED_ON_LOOP_BYTES: Final = 32 << 10
"""A larger request is decoded in a thread: 32 KiB of the smallest list elements take some milliseconds."""
PRODUCE_DECODED_ON_LOOP_BYTES: Final = 1_100_000
"""The same for Produce, which is mostly records. Clients send up to a mebibyte by default."""


@dataclass(slots=True)
class Route:
    """The functions and limits for requests of one API in one version."""

    key: int
    name: str
    answer: Callable[[Any, Caller], Message | Promise[Any] | None]
    request: type[Message]
    decode: Decoder
    frame: Framer
    bytes_max: int
    decoded_on_loop_bytes: int
    counts: RequestCounts


def make_route(handler: Handler, version: int) -> Route:
    key = handler.api
    framing = Framing(key, version)
    return Route(
        key=key,
        name=APIS[key].name,
        answer=handler.answer,
        request=request_class(key),
        decode=decoder(request_class(key), version),
        frame=_pausing(framing.frame) if key in STRICT_FROM_VERSION else framing.frame,
        bytes_max=sys.maxsize if key == ApiKey.PRODUCE else _bytes_max(handler),
        decoded_on_loop_bytes=PRODUCE_DECODED_ON_LOOP_BYTES if key == ApiKey.PRODUCE else DECODED_ON_LOOP_BYTES,
        counts=RequestCounts(key, version),
    )


def _pausing(frame: Framer) -> Framer:
    """For APIs with a quota that the controller counts: the connection pauses for the time that the response says."""

    def frame_and_pause(correlation_id: int, response: Any) -> Outgoing:
        framed = frame(correlation_id, response)
        framed.pause_ms = response.throttle_time_ms
        return framed

    return frame_and_pause


def _bytes_max(handler: Handler) -> int:
    """Return the handler's own limit, `request_bytes_max`, or the default."""
    limit: int = getattr(handler, "request_bytes_max", DEFAULT_REQUEST_BYTES_MAX)
    return limit
