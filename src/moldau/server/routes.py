"""What is looked up once for all requests of one API in one version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moldau.server.handler import Answer, Handler
from moldau.server.request_counts import RequestCounts
from moldau.wire.apis import APIS, request_class
from moldau.wire.codec import Decoder, Framer, Outgoing, decoder
from moldau.wire.frames import Framing
from moldau.wire.schema import Message


@dataclass(slots=True)
class Route:
    """The functions and limits for requests of one API in one version."""

    handler: Handler
    name: str
    answer: Answer
    request: type[Message]
    decode: Decoder
    """For the loop: it raises TooManyElements for what `decode_long` should decode in a thread."""
    decode_long: Decoder
    frame: Framer
    bytes_max: int
    decoded_on_loop_bytes: int
    counts: RequestCounts


def make_route(handler: Handler, answer: Answer, version: int) -> Route:
    key = handler.api
    framing = Framing(key, version)
    request = request_class(key)
    return Route(
        handler=handler,
        name=APIS[key].name,
        answer=answer,
        request=request,
        decode=decoder(request, version, handler.decoded_on_loop_elements),
        # Compiled when first needed.
        decode_long=lambda *frame: decoder(request, version, handler.elements_max, handler.total_elements_max)(*frame),
        frame=framing.frame if handler.mutation_error_from is None else _pausing(framing.frame),
        bytes_max=handler.request_bytes_max,
        decoded_on_loop_bytes=handler.decoded_on_loop_bytes,
        counts=RequestCounts(key, version),
    )


def _pausing(frame: Framer) -> Framer:
    """For APIs with a quota that the controller counts: the connection pauses for the time that the response says."""

    def frame_and_pause(correlation_id: int, response: Any) -> Outgoing:
        framed = frame(correlation_id, response)
        framed.pause_ms = response.throttle_time_ms
        return framed

    return frame_and_pause
