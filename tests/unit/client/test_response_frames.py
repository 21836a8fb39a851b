"""Responses of any size, arriving in pieces of any size, become whole frames, which do not change afterwards."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from harness.depth import deep
from scripted_peer import HEARTBEAT, ScriptedPeer, answer_to, framed, run, until

from moldau.client import response_frames
from moldau.client.peer_connections import PeerConnections
from moldau.client.response_frames import FIRST_READ_BYTES, RESPONSE_TRUSTED_BYTES, ResponseFrames
from moldau.wire.apis import ApiKey
from moldau.wire.frames import RequestHeader
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.wire.messages.heartbeat import HeartbeatResponse


def feed(frames: ResponseFrames, data: bytes, sizes: list[int]) -> None:
    """Feed the bytes as an event loop would, in pieces of these sizes, over and over."""
    position, turn = 0, 0
    while position < len(data):
        room = memoryview(frames.get_buffer(-1))
        count = min(len(room), sizes[turn % len(sizes)], len(data) - position)
        assert count > 0
        room[:count] = data[position : position + count]
        room.release()
        frames.buffer_updated(count)
        position, turn = position + count, turn + 1


@pytest.mark.parametrize("seed", range(deep(1, quick=3)))
def test_responses_of_all_sizes_in_pieces_of_all_sizes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_frames, "RESPONSE_TRUSTED_BYTES", 20_000)
    rng = random.Random(seed)
    edges = [4, 5, FIRST_READ_BYTES - 4, FIRST_READ_BYTES - 3, FIRST_READ_BYTES, 19_999, 20_000, 20_001, 70_000]
    sent = [rng.randbytes(size) for size in (*edges, *(rng.randint(4, 300) for _ in range(100)), *edges[::-1])]
    cut: list[memoryview] = []
    frames = ResponseFrames(cut.append, lambda reason, _: pytest.fail(reason))
    pieces = {0: [1], 1: [FIRST_READ_BYTES], 2: [1 << 20], 3: [3, 1, 2]}.get(
        seed, [rng.randint(1, 9000) for _ in range(50)]
    )
    feed(frames, b"".join(len(one).to_bytes(4, "big") + one for one in sent), pieces)
    assert [bytes(one) for one in cut] == sent


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_length_that_arrives_in_two_pieces_is_joined(behind: int) -> None:
    cut: list[memoryview] = []
    frames = ResponseFrames(cut.append, lambda reason, _: pytest.fail(reason))
    second = bytes(0x010203)
    feed(frames, b"\0\0\0\5first" + b"\0\1\2\3" + second, [9 + behind])
    assert [bytes(one) for one in cut] == [b"first", second]


def test_a_length_without_its_bytes_allocates_little_memory() -> None:
    frames = ResponseFrames(lambda frame: None, lambda reason, _: None)
    feed(frames, response_frames.RESPONSE_BYTES_MAX.to_bytes(4, "big") + bytes(100), [104])
    assert len(memoryview(frames.get_buffer(-1))) <= RESPONSE_TRUSTED_BYTES


def test_after_the_end_no_more_frames_are_produced() -> None:
    ends: list[tuple[str, bool]] = []
    cut: list[memoryview] = []
    frames = ResponseFrames(cut.append, lambda *end: ends.append(end))
    feed(frames, b"\xff\xff\xff\xff", [4])
    frames.connection_lost(None)
    assert len(ends) == 1
    assert ends[0][1]
    feed(frames, b"\0\0\0\4abcd", [8])
    assert not cut


@pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])
def test_records_do_not_change_while_other_responses_arrive(uv: bool) -> None:
    """Followers append the records later, so the buffer must not be reused."""

    def fetched(header: RequestHeader, size: int) -> bytes:
        records = bytes([header.correlation_id % 251]) * size
        partition = PartitionData(partition_index=0, records=memoryview(records))
        return framed(header, FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]))

    async def in_pieces(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
        if header.api_key == ApiKey.HEARTBEAT:
            writer.write(framed(header, HeartbeatResponse()))
            return
        data = fetched(header, 1_300_000 if header.correlation_id % 2 else 700)
        for start in range(0, len(data), 333_333):
            writer.write(data[start : start + 333_333])
            await asyncio.sleep(0)

    async def talk() -> None:
        server = await ScriptedPeer(in_pieces).start()
        peer = PeerConnections(asyncio.get_running_loop()).to("127.0.0.1", server.port, "fetch")
        answers: list[Any] = [peer.ask(ApiKey.FETCH, FetchRequest(), 5000, version=12) for _ in range(20)]
        await answer_to(peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000))
        await until(lambda: all(answer.done for answer in answers))
        for number, answer in enumerate(answers, start=2):
            records = answer.value().responses[0].partitions[0].records
            assert len(records) == (1_300_000 if number % 2 else 700)
            assert set(bytes(records)) == {number % 251}
        peer.close()
        await server.stop()

    run(talk(), uv)
