"""What is looked up once for all requests of one API in one version."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from moldau.base.limits import DEFAULT_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.security.quotas.mutations import STRICT_FROM_VERSION
from moldau.server.request_counts import RequestCounts
from moldau.wire.apis import APIS, ApiKey, request_class
from moldau.wire.codec import Decoder, Framer, Outgoing, decoder
from moldau.wire.decoder_source import REQUEST_ELEMENTS_MAX
from moldau.wire.frames import Framing
from moldau.wire.schema import Message

DECODED_ON_LOOP_BYTES: Final = 32 << 10
"""A larger request is decoded in a thread: 32 KiB of the smallest list elements take some milliseconds."""
DECODED_ON_LOOP_ELEMENTS: Final = 1_000
"""So is one with an array of more elements."""
PRODUCE_DECODED_ON_LOOP_BYTES: Final = 1_100_000
"""The same for Produce, which is mostly records. Clients send up to a mebibyte by default."""
PRODUCE_DECODED_ON_LOOP_ELEMENTS: Final = 128
"""Topics, and partitions of each: 128 of 128 take some 20 milliseconds."""
PRODUCE_ELEMENTS_MAX: Final = 20_000
"""The most topics and partitions of a Produce request. A partition without records takes six bytes, and a request may
have a hundred megabytes. Clients stay below it: a batch has at least 68 bytes, and they send a mebibyte by default."""
ELEMENTS_MAX: Final = 10_000
"""The most elements of one array in a request; integers, such as the partitions of a topic, may be 50,000. They are
handled in turns, but the parts of the response are put together in one."""
LONG_APIS: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.OFFSET_FETCH,
        ApiKey.ALTER_PARTITION,
    }
)
"""APIs whose requests may have 50,000 elements: clients name all partitions of a topic, and nodes all their own.
DescribeConfigs refuses more than 10,000 itself, with a reason."""


class Routed(Protocol):
    """What a route needs of a handler."""

    @property
    def api(self) -> ApiKey: ...

    def answer(self, request: Any, caller: Any) -> Message | Promise[Any] | None: ...


@dataclass(slots=True)
class Route:
    """The functions and limits for requests of one API in one version."""

    key: int
    name: str
    answer: Callable[[Any, Any], Message | Promise[Any] | None]
    request: type[Message]
    decode: Decoder
    """For the loop: it raises TooManyElements for what `decode_long` should decode in a thread."""
    decode_long: Decoder
    frame: Framer
    bytes_max: int
    decoded_on_loop_bytes: int
    counts: RequestCounts


def make_route(handler: Routed, version: int) -> Route:
    key = handler.api
    framing = Framing(key, version)
    request = request_class(key)
    is_produce = key == ApiKey.PRODUCE
    elements_max = REQUEST_ELEMENTS_MAX if key in LONG_APIS else ELEMENTS_MAX
    total_max = PRODUCE_ELEMENTS_MAX if is_produce else None
    return Route(
        key=key,
        name=APIS[key].name,
        answer=handler.answer,
        request=request,
        decode=decoder(request, version, PRODUCE_DECODED_ON_LOOP_ELEMENTS if is_produce else DECODED_ON_LOOP_ELEMENTS),
        # Compiled when first needed.
        decode_long=lambda *frame: decoder(request, version, elements_max, total_max)(*frame),
        frame=_pausing(framing.frame) if key in STRICT_FROM_VERSION else framing.frame,
        bytes_max=sys.maxsize if is_produce else _bytes_max(handler),
        decoded_on_loop_bytes=PRODUCE_DECODED_ON_LOOP_BYTES if is_produce else DECODED_ON_LOOP_BYTES,
        counts=RequestCounts(key, version),
    )


def _pausing(frame: Framer) -> Framer:
    """For APIs with a quota that the controller counts: the connection pauses for the time that the response says."""

    def frame_and_pause(correlation_id: int, response: Any) -> Outgoing:
        framed = frame(correlation_id, response)
        framed.pause_ms = response.throttle_time_ms
        return framed

    return frame_and_pause


def _bytes_max(handler: Routed) -> int:
    """Return the handler's own limit, `request_bytes_max`, or the default."""
    limit: int = getattr(handler, "request_bytes_max", DEFAULT_REQUEST_BYTES_MAX)
    return limit
