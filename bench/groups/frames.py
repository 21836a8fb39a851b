"""Requests of group members and committers as bytes, and the positions of fields in replies.

The newest versions with a fixed, plain layout are used (JoinGroup v5, SyncGroup v3, Heartbeat v3, LeaveGroup v3,
OffsetCommit v7, OffsetFetch v5, FindCoordinator v1); ConsumerGroupHeartbeat has only compact ones (v1). A reply is
read behind its size, so it begins with the correlation id; all but FindCoordinator's and the offsets' go on with int32
throttle and int16 error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.brokers.frames import request

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
CONSUMER_GROUP_HEARTBEAT: Final = 68

SESSION_TIMEOUT_MS: Final = 1_800_000
"""So long that no member is removed while another broker has its turn."""
REBALANCE_TIMEOUT_MS: Final = 300_000
NO_GENERATION: Final = -1
ASSIGNOR: Final = "range"
LEAVING_EPOCH: Final = -1

NULL: Final = b"\xff\xff"
COMPACT_NULL: Final = b"\0"
NO_TAGS: Final = b"\0"
ERROR_AT: Final = 8
CONSUMER_ERROR_AT: Final = 9
"""A compact reply has tags behind the correlation id."""
UUID_BYTES: Final = 16


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def error_of(reply: memoryview, at: int = ERROR_AT) -> int:
    return int.from_bytes(reply[at : at + 2], "big", signed=True)


# --- classic members -----------------------------------------------------------------------------------------------


def join_frame(group_id: str, member_id: str, topic: str) -> bytes:
    subscription = struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)
    body = string(group_id) + struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS) + string(member_id) + NULL
    body += string("consumer") + struct.pack(">i", 1) + string(ASSIGNOR) + _sized(subscription)
    return request(JOIN_GROUP, 5, body)


@dataclass(frozen=True)
class Joined:
    error: int
    generation: int
    leader_id: str
    member_id: str
    member_ids: Sequence[str]
    """Only the leader gets them."""


def read_joined(reply: memoryview) -> Joined:
    error, generation = struct.unpack_from(">hi", reply, ERROR_AT)
    _, at = _read_string(reply, ERROR_AT + 6)
    leader_id, at = _read_string(reply, at)
    member_id, at = _read_string(reply, at)
    count = int.from_bytes(reply[at : at + 4], "big")
    at += 4
    member_ids = []
    for _ in range(count):
        each, at = _read_string(reply, at)
        _, at = _read_string(reply, at)
        at += 4 + int.from_bytes(reply[at : at + 4], "big")
        member_ids.append(each)
    return Joined(error, generation, leader_id, member_id, member_ids)


def sync_frame(group_id: str, generation: int, member_id: str, assignments: Mapping[str, bytes]) -> bytes:
    body = string(group_id) + struct.pack(">i", generation) + string(member_id) + NULL
    body += struct.pack(">i", len(assignments))
    body += b"".join(string(member) + _sized(assignment) for member, assignment in assignments.items())
    return request(SYNC_GROUP, 3, body)


def assignment_bytes(topic: str, partitions: Sequence[int]) -> bytes:
    indexes = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + string(topic) + indexes + struct.pack(">i", -1)


def heartbeat_frame(group_id: str, generation: int, member_id: str) -> bytes:
    return request(HEARTBEAT, 3, string(group_id) + struct.pack(">i", generation) + string(member_id) + NULL)


def leave_frame(group_id: str, member_ids: Sequence[str]) -> bytes:
    members = b"".join(string(member_id) + NULL for member_id in member_ids)
    return request(LEAVE_GROUP, 3, string(group_id) + struct.pack(">i", len(member_ids)) + members)


# --- members of consumer groups (KIP-848) --------------------------------------------------------------------------


def consumer_join_frame(group_id: str, member_id: str, topic: str) -> bytes:
    owned = unsigned_varint(1)  # an empty list: nobody owns anything yet
    topics = unsigned_varint(2) + compact(topic)
    return _consumer_frame(group_id, member_id, 0, REBALANCE_TIMEOUT_MS, topics, owned)


def consumer_heartbeat_frame(group_id: str, member_id: str, epoch: int, owned: bytes = COMPACT_NULL) -> bytes:
    """`owned` are the topics and partitions as the broker assigned them, where that has to be acknowledged."""
    return _consumer_frame(group_id, member_id, epoch, -1, COMPACT_NULL, owned)


def _consumer_frame(
    group_id: str, member_id: str, epoch: int, rebalance_timeout_ms: int, topics: bytes, owned: bytes
) -> bytes:
    member = compact(group_id) + compact(member_id) + struct.pack(">i", epoch)
    no_instance_no_rack = COMPACT_NULL * 2
    no_pattern_no_assignor = COMPACT_NULL * 2
    body = member + no_instance_no_rack + struct.pack(">i", rebalance_timeout_ms)
    body += topics + no_pattern_no_assignor + owned + NO_TAGS
    return request(CONSUMER_GROUP_HEARTBEAT, 1, NO_TAGS + body)


@dataclass(frozen=True)
class Beat:
    error: int
    epoch: int = 0
    partitions: int = 0
    assigned: bytes | None = None
    """Return topics and partitions as bytes of the reply, to be sent back unchanged. None if nothing is new."""


def read_beat(reply: memoryview) -> Beat:
    if error := error_of(reply, CONSUMER_ERROR_AT):
        return Beat(error)
    at = _skip_compact(reply, CONSUMER_ERROR_AT + 2)  # the error message
    at = _skip_compact(reply, at)  # the member id
    epoch, _, has_assignment = struct.unpack_from(">iib", reply, at)
    at += 9
    if has_assignment < 0:
        return Beat(0, epoch)
    assigned = bytes(reply[at : len(reply) - 2])  # tags of the assignment and of the reply, none of them
    return Beat(0, epoch, _count_partitions(assigned), assigned)


def _count_partitions(assigned: bytes) -> int:
    topics, at = _read_unsigned_varint(assigned, 0)
    total = 0
    for _ in range(topics - 1):
        count, at = _read_unsigned_varint(assigned, at + UUID_BYTES)
        total += count - 1
        at += 4 * (count - 1) + len(NO_TAGS)
    return total


# --- offsets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Committer:
    """Who commits; without a member id, a client outside the group."""

    group_id: str
    member_id: str = ""
    generation: int = NO_GENERATION


def commit_frame(who: Committer, topic: str, offsets: Mapping[int, int]) -> bytes:
    body = string(who.group_id) + struct.pack(">i", who.generation) + string(who.member_id) + NULL
    body += struct.pack(">i", 1) + string(topic) + struct.pack(">i", len(offsets))
    body += b"".join(struct.pack(">iqi", *item, -1) + string("") for item in offsets.items())
    return request(OFFSET_COMMIT, 7, body)


def committed_reply(topic: str, partitions: Sequence[int]) -> bytes:
    """Return the whole reply, with its size, for a commit in which every offset was accepted."""
    body = struct.pack(">iii", 1, 0, 1) + string(topic) + struct.pack(">i", len(partitions))
    body += b"".join(struct.pack(">ih", index, 0) for index in partitions)
    return struct.pack(">i", len(body)) + body


def offset_fetch_frame(group_id: str, topic: str, partition: int) -> bytes:
    topics = struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, partition)
    return request(OFFSET_FETCH, 5, string(group_id) + topics)


def read_fetched_offset(reply: memoryview) -> tuple[int, int]:
    """Return the error, and the offset of the one requested partition."""
    error = int.from_bytes(reply[-2:], "big", signed=True)
    topics = int.from_bytes(reply[8:12], "big")
    if error or not topics:
        return error, -1
    _, at = _read_string(reply, 12)
    offset: int = struct.unpack_from(">q", reply, at + 8)[0]
    return error, offset


def find_coordinator_frame(group_id: str) -> bytes:
    return request(FIND_COORDINATOR, 1, string(group_id) + b"\0")


# --- small parts of the protocol -----------------------------------------------------------------------------------


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _read_string(reply: memoryview, at: int) -> tuple[str, int]:
    size = int.from_bytes(reply[at : at + 2], "big", signed=True)
    end = at + 2 + max(size, 0)
    return str(reply[at + 2 : end], "utf-8"), end


def compact(text: str) -> bytes:
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def _skip_compact(reply: memoryview, at: int) -> int:
    size, at = _read_unsigned_varint(reply, at)
    return at + max(size - 1, 0)


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_unsigned_varint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
