"""The frames around messages: lengths, request and response headers, their tagged fields, malformed frames.

kio's headers and their versions are the reference for every API in every version.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from harness.random_messages import Filling, random_message
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseV1
from kio.serial import entity_reader, entity_writer
from oracles import kio_class

from moldau.base.errors import MalformedData
from moldau.base.limits import TAGS_MAX
from moldau.wire.apis import APIS, ApiKey, request_class, response_class
from moldau.wire.codec import decode, encode
from moldau.wire.frames import Framing, RequestHeader, read_request_header, read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.schema import Records

HEARTBEAT_FLEXIBLE, HEARTBEAT_LEGACY = 4, 3
EVERY_API = [
    (key, version) for key, api in APIS.items() if api.module for version in range(api.lowest, api.highest + 1)
]
CLIENT_IDS = [None, "", "moldau", "vltava-řeka-🌊", "x" * 32_767]


def header_bytes(version: int, client_id: bytes | None = b"c", tags: bytes = b"\0") -> bytes:
    """Return a Heartbeat header written by hand."""
    length = -1 if client_id is None else len(client_id)
    lead = struct.pack(">hhih", ApiKey.HEARTBEAT, version, 42, length) + (client_id or b"")
    return lead + (tags if version >= HEARTBEAT_FLEXIBLE else b"")


# --- requests


@pytest.mark.parametrize("client_id", CLIENT_IDS, ids=lambda text: repr(text)[:20])
@pytest.mark.parametrize("version", [HEARTBEAT_LEGACY, HEARTBEAT_FLEXIBLE])
def test_request_headers_round_trip(client_id: str | None, version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    frame = request_frame(ApiKey.HEARTBEAT, version, -5, client_id, request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = read_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(ApiKey.HEARTBEAT, version, -5, client_id)
    assert decode(HeartbeatRequest, memoryview(frame)[4 + position :], version) == request


def test_request_frames_equal_kios_for_every_api_and_version() -> None:
    """kio has its own table of header versions."""
    for key, version in EVERY_API:
        cls = request_class(key)
        request = random_message(cls, version, Filling.LEAST, 0)
        schema: Any = kio_class(cls, version).__header_schema__
        assert schema == (KioHeaderV2 if APIS[key].is_flexible(version) else KioHeaderV1)
        header = schema(request_api_key=key, request_api_version=version, correlation_id=7, client_id="ř")
        out = io.BytesIO()
        entity_writer(schema)(out, header)
        body = bytearray()
        encode(request, version, body)
        frame = request_frame(key, version, 7, "ř", request)
        assert bytes(frame[4:]) == out.getvalue() + body, (key, version)
        assert read_request_header(bytes(frame[4:])) == (RequestHeader(key, version, 7, "ř"), len(out.getvalue()))


def test_an_unknown_api_key_still_has_a_header() -> None:
    """So that the response can have the correlation id; the bytes after the client id are not read."""
    frame = struct.pack(">hhih", 999, 7, 42, 1) + b"c\xff\xff\xff"
    assert read_request_header(frame) == (RequestHeader(999, 7, 42, "c"), 11)


def test_a_version_beyond_the_highest_has_the_flexible_header() -> None:
    """A newer client's ApiVersions request must get its answer, UNSUPPORTED_VERSION (KIP-511)."""
    frame = request_frame(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest())
    frame[6:8] = struct.pack(">h", 99)
    header, position = read_request_header(frame[4:])
    assert header.api_version == 99
    assert position == 4 + 4 + 2 + 1 + 1


def test_tagged_fields_of_a_header_are_skipped() -> None:
    tags = b"\x02" + b"\x00\x01x" + b"\x85\x01\x80\x01" + bytes(128)
    data = header_bytes(HEARTBEAT_FLEXIBLE, tags=tags) + b"body"
    header, position = read_request_header(data)
    assert header.client_id == "c"
    assert data[position:] == b"body"


def test_as_many_header_tags_as_the_limit_are_read_and_one_more_is_refused() -> None:
    tag = b"\x01\x00"
    most = header_bytes(HEARTBEAT_FLEXIBLE, tags=bytes([TAGS_MAX]) + tag * TAGS_MAX)
    assert read_request_header(most)[1] == len(most)
    more = header_bytes(HEARTBEAT_FLEXIBLE, tags=bytes([TAGS_MAX + 1]) + tag * (TAGS_MAX + 1))
    with pytest.raises(MalformedData, match="too many tagged fields"):
        read_request_header(more)
    with pytest.raises(MalformedData, match="too many tagged fields"):
        read_request_header(header_bytes(HEARTBEAT_FLEXIBLE, tags=b"\xff\xff\xff\xff\x0f"))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "cut short"),
        (b"\0\x0c\0\4\0\0\0", "cut short"),
        (header_bytes(HEARTBEAT_FLEXIBLE)[:-1], "cut short"),
        (header_bytes(HEARTBEAT_FLEXIBLE, tags=b"\x01"), "cut short"),
        (header_bytes(HEARTBEAT_FLEXIBLE, tags=b"\x01\x00"), "cut short"),
        (header_bytes(HEARTBEAT_FLEXIBLE, tags=b"\x01\x00\x05abc"), "longer than the request header"),
        (header_bytes(HEARTBEAT_FLEXIBLE, tags=b"\x01\x00\xff\xff\xff\xff\x07"), "longer than the request header"),
        (header_bytes(HEARTBEAT_FLEXIBLE, tags=b"\x01" + b"\x80" * 6), "more than five bytes"),
        (header_bytes(HEARTBEAT_LEGACY, b"\xc3\x28"), "not UTF-8"),
        (struct.pack(">hhih", 12, 3, 1, 5) + b"abc", "client id is longer"),
        (struct.pack(">hhih", 12, 3, 1, -2), "negative length"),
        (struct.pack(">hhih", 12, 3, 1, -32_768), "negative length"),
    ],
)
def test_broken_request_headers_are_refused(data: bytes, complaint: str) -> None:
    for kind in (bytes, bytearray, memoryview):
        with pytest.raises(MalformedData, match=complaint):
            read_request_header(kind(data))


def test_every_truncated_header_is_refused() -> None:
    whole = header_bytes(HEARTBEAT_FLEXIBLE, "řeka".encode(), tags=b"\x01\x00\x02xy")
    for length in range(len(whole)):
        with pytest.raises(MalformedData):
            read_request_header(whole[:length])


# --- responses


@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("version", [HEARTBEAT_LEGACY, HEARTBEAT_FLEXIBLE])
def test_responses_round_trip(correlation_id: int, version: int) -> None:
    response = HeartbeatResponse(throttle_time_ms=9, error_code=25)
    frame = Framing(ApiKey.HEARTBEAT, version).frame(correlation_id, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    for data in (bytes(frame[4:]), memoryview(frame)[4:]):
        assert read_response(HeartbeatResponse, data, ApiKey.HEARTBEAT, version) == (correlation_id, response)


def test_response_frames_equal_kios_for_every_api_and_version() -> None:
    for key, version in EVERY_API:
        cls = response_class(key)
        response = random_message(cls, version, Filling.LEAST, 0)
        schema: Any = kio_class(cls, version).__header_schema__
        flexible = APIS[key].is_flexible(version) and key != ApiKey.API_VERSIONS
        assert schema == (KioResponseV1 if flexible else KioResponseV0)
        frame = bytes(Framing(key, version).frame(77, response)[4:])
        header, size = entity_reader(schema)(frame, 0)
        assert header.correlation_id == 77
        assert decode(cls, frame[size:], version) == response
        assert read_response(cls, frame, key, version) == (77, response)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_answers_with_the_oldest_header(version: int) -> None:
    """The client does not know our versions yet, so there are no tagged fields before the error code."""
    frame = Framing(ApiKey.API_VERSIONS, version).frame(1, ApiVersionsResponse(error_code=35))
    assert frame[4:10] == struct.pack(">ih", 1, 35)
    assert read_response(ApiVersionsResponse, frame[4:], ApiKey.API_VERSIONS, version)[1].error_code == 35


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    response = HeartbeatResponse(error_code=27)
    frame = bytes(Framing(ApiKey.HEARTBEAT, HEARTBEAT_FLEXIBLE).frame(5, response)[4:])
    tagged = frame[:4] + b"\x01\x09\x03abc" + frame[5:]
    assert read_response(HeartbeatResponse, tagged, ApiKey.HEARTBEAT, HEARTBEAT_FLEXIBLE) == (5, response)


def test_broken_responses_are_refused() -> None:
    for version in (HEARTBEAT_LEGACY, HEARTBEAT_FLEXIBLE):
        frame = bytes(Framing(ApiKey.HEARTBEAT, version).frame(5, HeartbeatResponse())[4:])
        for length in range(len(frame)):
            with pytest.raises(MalformedData):
                read_response(HeartbeatResponse, frame[:length], ApiKey.HEARTBEAT, version)
        with pytest.raises(MalformedData, match="1 bytes after the end"):
            read_response(HeartbeatResponse, frame + b"\0", ApiKey.HEARTBEAT, version)


# --- records that stay in their files


class FileSlice:
    """Records of which only the length is known."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_in_a_file_are_counted_and_inserted_at_their_offset(version: int) -> None:
    """A frame with the slices inserted equals the frame of the same records as bytes."""
    contents = [b"first" * 40, b"", b"second" * 3000]

    def response(records: Sequence[Records]) -> FetchResponse:
        partitions = [PartitionData(partition_index=i, records=r) for i, r in enumerate(records)]
        return FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])

    plain = Framing(ApiKey.FETCH, version).frame(1, response(contents))
    assert plain.slices == ()
    sliced = Framing(ApiKey.FETCH, version).frame(1, response([FileSlice(content) for content in contents]))
    whole, written = b"", 0
    for place, records in sliced.slices:
        whole += sliced[written:place] + records.content
        written = place
    assert bytes(whole + sliced[written:]) == bytes(plain)
    assert len(sliced) == len(plain) - sum(map(len, contents))
