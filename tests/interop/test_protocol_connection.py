"""One connection: pipelined requests, responses in order, correlation ids returned unchanged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from batches import batch
from protocol_requests import NEVER_MS, by_name, end_offset, fetch_request, produce_request
from wire_client import Wire, decode_response, encode_request, message

CreateTopic = Callable[..., str]


def test_pipelined_requests_are_answered_in_order(wire: Wire, create_topic: CreateTopic) -> None:
    """`collect` asserts each correlation id."""
    name = create_topic()
    for n in range(10):
        wire.post(produce_request(name, batch([b"%d" % n]), acks=-1 if n % 2 else 1))
        wire.post(message("api_versions", 0))
    answers = [wire.collect() for _ in range(20)]
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers[::2]] == list(range(10))


def test_a_waiting_fetch_delays_later_responses_on_its_connection(
    wire: Wire, bootstrap: str, create_topic: CreateTopic
) -> None:
    """The metadata request is answered only after the fetch before it, which waits for a write."""
    name = create_topic()
    wire.post(fetch_request(name, 0, max_wait=NEVER_MS, min_bytes=1))
    wire.post(message("metadata", 1, topics=[]))
    assert wire.is_silent(0.3)
    with Wire(bootstrap) as other:
        other.ask(produce_request(name, batch([b"v"])))
    assert wire.collect().responses[0].partitions[0].high_watermark == 1
    assert wire.collect().topics == ()


def test_a_waiting_fetch_does_not_block_other_connections(
    wire: Wire, bootstrap: str, create_topic: CreateTopic
) -> None:
    name = create_topic()
    wire.post(fetch_request(name, 0, max_wait=NEVER_MS, min_bytes=1))
    with Wire(bootstrap) as other:
        assert end_offset(other, name) == 0
        assert wire.is_silent(0.1), "the fetch still waits"
        other.ask(produce_request(name, batch([b"v"])))
    assert wire.collect().responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_any_correlation_id_is_returned(wire: Wire, correlation_id: int) -> None:
    request = message("api_versions", 0)
    for _ in range(2):
        wire.send_frame(encode_request(request, correlation_id))
        assert decode_response(request, wire.receive_frame(), correlation_id).error_code == 0


@pytest.mark.parametrize("client_id", [None, "", "a" * 5000, "žluťoučký kůň", "line\nbreak %s {} \x00"])
def test_any_client_id_is_accepted(wire: Wire, client_id: str | None) -> None:
    request = message(
        "metadata", 12, topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    wire.send_frame(encode_request(request, 5, client_id))
    assert decode_response(request, wire.receive_frame(), 5).brokers


def test_a_frame_sent_byte_by_byte_is_answered(wire: Wire) -> None:
    request = message("api_versions", 0)
    body = encode_request(request, 9)
    for byte in len(body).to_bytes(4, "big") + body:
        wire.send_bytes(bytes([byte]))
    assert decode_response(request, wire.receive_frame(), 9).error_code == 0


def test_many_frames_in_one_packet_are_answered(wire: Wire) -> None:
    request = message("api_versions", 0)
    frames = b"".join(
        len(body).to_bytes(4, "big") + body for body in (encode_request(request, number) for number in range(50))
    )
    wire.send_bytes(frames)
    for number in range(50):
        decode_response(request, wire.receive_frame(), number)


def test_disconnecting_during_a_waiting_fetch_affects_no_other_client(
    bootstrap: str, wire: Wire, create_topic: CreateTopic
) -> None:
    name = create_topic()
    for _ in range(5):
        with Wire(bootstrap) as leaving:
            leaving.post(fetch_request(name, 0, max_wait=NEVER_MS, min_bytes=1))
    wire.ask(produce_request(name, batch([b"v"])))
    assert end_offset(wire, name) == 1


def test_many_connections_at_once(bootstrap: str) -> None:
    connections = [Wire(bootstrap) for _ in range(100)]
    try:
        for connection in connections:
            connection.post(message("api_versions", 0))
        assert all(connection.collect().error_code == 0 for connection in connections)
    finally:
        for connection in connections:
            connection.socket.close()


def test_metadata_of_many_topics_in_one_request(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    requested = [by_name(f"{name}-missing-{n}") for n in range(500)] + [by_name(name)]
    request = message(
        "metadata", 12, topics=requested, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    answer = wire.ask(request)
    assert len(answer.topics) == 501
    assert [shown.name for shown in answer.topics if shown.error_code == 0] == [name]
