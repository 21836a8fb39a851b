"""Hostile and malformed bytes are refused with Kafka's error or by closing the connection, and affect no other client.

After every test, a client that was connected all along must still be served, and the log must not have changed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import pytest
from batches import batch
from group_members import Group
from protocol_requests import by_name, end_offset, fetch, fetch_request, metadata, produce, produce_request
from wire_client import ConnectionEnded, Wire, encode_request, message

CreateTopic = Callable[..., str]
LONGEST_STRING = 32_767
REQUEST_MAX_BYTES = 104_857_600
SEED = 20_240_117
FUZZED_FRAMES = 3000
SILENCE_S = 0.2


@pytest.fixture(scope="module")
def victim(create_topic: CreateTopic) -> str:
    """The topic that is attacked."""
    return create_topic()


@pytest.fixture(scope="module")
def bystander(bootstrap: str, victim: str) -> Iterator[Wire]:
    """A well-behaved connection, open from before the first attack until after the last."""
    with Wire(bootstrap) as connection:
        assert produce(connection, victim, batch([b"precious"])).base_offset == 0
        yield connection


@pytest.fixture(autouse=True)
def other_clients_are_still_served(bystander: Wire, victim: str) -> Iterator[None]:
    yield
    assert end_offset(bystander, victim) == 1
    assert b"precious" in bytes(fetch(bystander, victim, 0).records)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, client_id: bytes = b"\xff\xff") -> bytes:
    """Return a request header without tags: correlation id 1, null client id unless given with its length."""
    return struct.pack(">hhi", key, version, 1) + client_id


def outcome(bootstrap: str, raw: bytes) -> bytes | None:
    """Return the response to these bytes; None if the connection is closed. No response fails with TimeoutError."""
    with Wire(bootstrap) as attacker:
        try:
            attacker.send_bytes(raw)
        except ConnectionEnded:
            return None
        return attacker.answer_or_close()


NO_TAGS = b"\x00"
METADATA_1 = header(3, 1)
METADATA_12 = header(3, 12)
PRODUCE_9 = header(0, 9) + NO_TAGS

CLOSING: dict[str, bytes] = {
    "size -1": struct.pack(">i", -1) + bytes(10),
    "size -2^31": struct.pack(">i", -(2**31)),
    "size one over socket.request.max.bytes": struct.pack(">i", REQUEST_MAX_BYTES + 1) + b"x",
    "size 2^31-1": struct.pack(">i", 2**31 - 1) + b"x",
    "size 0": struct.pack(">i", 0),
    "one byte": frame(b"\x00"),
    "half a header": frame(b"\x00\x03\x00\x00"),
    "header without client id": frame(struct.pack(">hhi", 3, 1, 1)),
    "no body": frame(METADATA_1),
    "unknown api key": frame(header(999, 0)),
    "negative api key": frame(header(-1, 0)),
    "api key removed in 4.0": frame(header(4, 0)),
    "api key of the quorum": frame(header(52, 0) + b"\x00\x00\x01\x00"),
    "metadata version 99": frame(header(3, 99) + bytes(20)),
    "metadata version -1": frame(header(3, -1) + bytes(20)),
    "produce version 2, though offered": frame(header(0, 2) + struct.pack(">hii", 1, 1000, 0)),
    "produce version 0, though offered": frame(header(0, 0) + struct.pack(">hii", 1, 1000, 0)),
    "fetch version 3": frame(header(1, 3) + struct.pack(">iiiii", -1, 0, 0, 100, 0)),
    "client id longer than the frame": frame(header(3, 1, struct.pack(">h", 500) + b"abc")),
    "array longer than the frame": frame(METADATA_1 + struct.pack(">i", 100_000)),
    "name longer than the frame": frame(METADATA_1 + struct.pack(">ih", 1, 1000) + b"abc"),
    "null name where null is not allowed": frame(METADATA_1 + struct.pack(">ih", 1, -1)),
    "negative length of a name in a request of 70 kB": frame(
        METADATA_1 + struct.pack(">ihx", 2, 1) + struct.pack(">h", -5) + bytes(70_000)
    ),
    "name of 40,000 bytes": frame(
        METADATA_12 + NO_TAGS + b"\x02" + bytes(16) + b"\xc1\xb8\x02" + b"x" * 40_000 + bytes(9)
    ),
    "header tags without end": frame(METADATA_12 + b"\xff\xff\xff\xff\x07" + bytes(10)),
    "header tag longer than the frame": frame(METADATA_12 + b"\x01\x05\x7f\x01\x00\x00\x00"),
    "varint of twelve bytes": frame(METADATA_12 + NO_TAGS + b"\xff" * 12),
    "null topic name in produce": frame(PRODUCE_9 + b"\x00" + struct.pack(">hi", 1, 100) + b"\x02\x00\x01\x00\x00"),
    "records longer than the frame": frame(
        PRODUCE_9 + b"\x00" + struct.pack(">hi", 1, 100) + b"\x02\x02a\x02" + struct.pack(">i", 0) + b"\xff\xff\xff\x7f"
    ),
    "garbage in ApiVersions": frame(header(18, 3) + NO_TAGS + b"\xff" * 5),
    "ApiVersions without a body": frame(header(18, 3)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + bytes(300),
}


@pytest.mark.parametrize("case", CLOSING)
def test_malformed_bytes_close_the_connection(bootstrap: str, case: str) -> None:
    assert outcome(bootstrap, CLOSING[case]) is None


# Apache accepts these: any negative length as null, bad UTF-8 with replacement characters, any trailing
# bytes. Closing the connection is allowed too, if the next test's client is served.
TOLERATED_OR_CLOSING: dict[str, bytes] = {
    "client id of length -2": frame(header(3, 1, struct.pack(">h", -2)) + struct.pack(">i", 0)),
    "client id not UTF-8": frame(header(3, 1, struct.pack(">h", 2) + b"\xff\xfe") + struct.pack(">i", 0)),
    "array of length -2": frame(METADATA_1 + struct.pack(">i", -2)),
    "topic name not UTF-8": frame(METADATA_1 + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "trailing garbage": frame(header(18, 0) + b"garbage"),
    "ten unknown header tags": frame(
        METADATA_12 + b"\x0a" + bytes(b for tag in range(10) for b in (tag, 0)) + b"\x01\x00\x00\x00"
    ),
    "the same header tag twice": frame(METADATA_12 + b"\x02\x05\x00\x05\x00" + b"\x01\x00\x00\x00"),
    "SASL on a listener without SASL": frame(header(17, 1) + struct.pack(">h", 5) + b"PLAIN"),
}


@pytest.mark.parametrize("case", TOLERATED_OR_CLOSING)
def test_tolerated_bytes_are_answered_or_close_the_connection(bootstrap: str, case: str) -> None:
    answer = outcome(bootstrap, TOLERATED_OR_CLOSING[case])
    assert answer is None or answer[:4] == struct.pack(">i", 1)


@pytest.mark.moldau_only  # Apache 4.3.1 allocates the declared count or size first (CVE-2026-111108, -111115)
@pytest.mark.parametrize(
    "raw",
    [
        frame(METADATA_1 + struct.pack(">i", 2**31 - 1)),
        frame(METADATA_12 + NO_TAGS + b"\xff\xff\xff\xff\x0f" + bytes(100)),
        frame(METADATA_12 + b"\xff\xff\xff\xff\x0f" + bytes(1000)),
        frame(PRODUCE_9 + b"\x00" + struct.pack(">hi", 1, 100) + b"\xff\xff\xff\xff\x0f" + bytes(50)),
        frame(METADATA_12 + b"\x80\x80\x80\x01" + bytes(range(256)) * 4000),
    ],
    ids=["array", "compact array", "header tags", "produce topics", "a mebibyte of header tags"],
)
def test_a_false_declared_count_closes_the_connection(bootstrap: str, raw: bytes) -> None:
    assert outcome(bootstrap, raw) is None


@pytest.mark.moldau_only  # Apache allocates each declared size at once, which may exceed its heap
def test_a_declared_size_is_not_allocated(bootstrap: str, bystander: Wire, victim: str) -> None:
    attackers = [Wire(bootstrap) for _ in range(50)]
    for attacker in attackers:
        attacker.send_bytes(struct.pack(">i", REQUEST_MAX_BYTES) + b"\x00")
    assert end_offset(bystander, victim) == 1
    for attacker in attackers:
        attacker.socket.close()


def test_half_frames_do_not_block_other_clients(bootstrap: str, bystander: Wire, victim: str) -> None:
    raw = frame(encode_request(message("api_versions", 0), 1))
    halves = [(Wire(bootstrap), cut) for cut in range(1, len(raw))]
    for slow, cut in halves:
        slow.send_bytes(raw[:cut])
    assert end_offset(bystander, victim) == 1
    for slow, cut in halves:
        slow.send_bytes(raw[cut:])
        assert slow.receive_frame()[:4] == struct.pack(">i", 1)
        slow.socket.close()


def test_disconnecting_in_the_middle_of_a_frame(bootstrap: str) -> None:
    raw = frame(encode_request(produce_request("whatever", batch([b"v" * 1000])), 1))
    for cut in range(1, len(raw), 97):
        with Wire(bootstrap) as leaving:
            leaving.send_bytes(raw[:cut])


def test_a_good_request_before_a_bad_one_is_answered(bootstrap: str) -> None:
    with Wire(bootstrap) as attacker:
        attacker.send_bytes(frame(encode_request(message("api_versions", 0), 1)) + CLOSING["unknown api key"])
        assert attacker.receive_frame()[:4] == struct.pack(">i", 1)
        assert attacker.answer_or_close() is None


def test_nothing_after_a_bad_frame_is_executed(bootstrap: str, victim: str) -> None:
    good = frame(encode_request(produce_request(victim, batch([b"too late"])), 2))
    assert outcome(bootstrap, CLOSING["unknown api key"] + good) is None


# ---- well-formed but invalid


@pytest.mark.parametrize("instance", [None, "i" * LONGEST_STRING], ids=["dynamic", "static"])
def test_a_member_with_the_longest_client_id_joins(bootstrap: str, instance: str | None) -> None:
    with Group(bootstrap) as group:
        member = group.member(instance=instance, version=5)
        member.wire.client_id = "c" * LONGEST_STRING
        joined = member.ask_join()
        if instance is None:
            joined = member.ask_join(member_id=joined.member_id)
        assert (joined.error_code, joined.leader) == (0, joined.member_id)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "../../etc/passwd", "a/b", "ž", "a\x00", "a" * 250, "a" * 30_000])
def test_illegal_topic_names_are_refused_by_all_apis(wire: Wire, name: str) -> None:
    """Metadata returns 17; the data APIs find no such topic; nothing is created."""
    (shown,) = metadata(wire, [by_name(name)], auto_create=True).topics
    assert shown.error_code == 17
    assert produce(wire, name, batch([b"v"])).error_code in (3, 17)
    assert fetch(wire, name, 0).error_code in (3, 17)
    made = {"name": name, "num_partitions": 1, "replication_factor": 1}
    (created,) = wire.ask(message("create_topics", 5, topics=[made], timeout=1000, validate_only=False)).topics
    assert created.error_code == 17


BAD_RECORDS = {
    "wrong checksum": (batch([b"v"], crc=1), 2),
    "one bit flipped": (batch([b"v" * 50])[:-7] + b"\x00" + batch([b"v" * 50])[-6:], 2),
    "magic 9": (batch([b"v"], magic=9), 2),
    "magic 0": (batch([b"v"], magic=0), 87),
    "larger than max.message.bytes": (batch([bytes(1_100_000)]), 10),
    "zeros": (bytes(100), 2),
    "noise": (random.Random(SEED).randbytes(300), 2),
    "length beyond the end": (batch([b"v"], length=10_000), 87),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_invalid_batches_are_refused(wire: Wire, victim: str, case: str) -> None:
    records, code = BAD_RECORDS[case]
    answer = produce(wire, victim, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)


def test_a_batch_length_that_overflows_is_refused(wire: Wire, victim: str) -> None:
    """Apache's sum overflows and it fails internally (-1)."""
    assert produce(wire, victim, batch([b"v"], length=2**31 - 1)).error_code in (-1, 2, 87)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_decompression_bomb_is_survived(wire: Wire, create_topic: CreateTopic, codec: str) -> None:
    """64 MiB of zeros in one small record. Kafka accepts it: the limit is on the compressed batch. Others may
    refuse."""
    name = create_topic()
    bomb = batch([bytes(64 << 20)], codec)
    expected = (0, -1, 2, 10, 87) if len(bomb) <= 1_048_588 else (10,)
    assert produce(wire, name, bomb).error_code in expected


def test_odd_numbers_in_well_formed_requests(wire: Wire, victim: str) -> None:
    assert fetch(wire, victim, 0, partition=2**31 - 1).error_code == 3
    assert fetch(wire, victim, 0, partition=-1).error_code == 3
    assert fetch(wire, victim, 1, min_bytes=-1, max_wait=-1).error_code == 0
    # A negative size fails inside Apache (-1); an empty or a one-batch response is allowed too.
    assert fetch(wire, victim, 0, max_bytes=-1).error_code in (-1, 0, 42)
    assert fetch(wire, victim, 0, partition_max_bytes=-1).error_code in (-1, 0, 42)
    assert fetch(wire, victim, 0, isolation_level=1).error_code == 0


# ---- random requests


def good_requests(victim: str) -> list[bytes]:
    """Return requests to mutate. None can write: the only batch has a wrong checksum."""
    listing = [{"name": victim, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    resources = [{"resource_type": 2, "resource_name": victim, "configuration_keys": None}]
    software = {"client_software_name": "fuzz", "client_software_version": "1"}
    payloads = [
        message("api_versions", 0),
        message("api_versions", 3, **software),
        message("metadata", 1, topics=[{"name": victim}]),
        message("metadata", 12, topics=[by_name(victim)], **flags),
        message("list_offsets", 1, replica_id=-1, topics=listing),
        message("list_offsets", 7, replica_id=-1, isolation_level=0, topics=listing),
        message("describe_configs", 4, resources=resources, include_synonyms=True, include_documentation=False),
        message("describe_cluster", 1, include_cluster_authorized_operations=True, endpoint_type=1),
        message("describe_topic_partitions", 0, topics=[{"name": victim}], response_partition_limit=5, cursor=None),
        message("offset_for_leader_epoch", 3, replica_id=-1, topics=[]),
        produce_request(victim, batch([b"v" * 40], crc=1), version=3),
        produce_request(victim, batch([b"v" * 40], crc=1), version=9),
        fetch_request(victim, 0, version=4),
        fetch_request(victim, 0, version=12),
    ]
    return [encode_request(payload, 1) for payload in payloads]


def mutate(chance: random.Random, body: bytes) -> bytes:
    """Make one to four small mutations: a changed byte, an extreme byte, a cut, an insertion, a repeated piece."""
    mutated = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(mutated)) if mutated else 0
        match chance.randrange(5):
            case 0 if mutated:
                mutated[place] ^= 1 << chance.randrange(8)
            case 1 if mutated:
                mutated[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del mutated[place : place + chance.randint(1, 8)]
            case 3:
                mutated[place:place] = chance.randbytes(chance.randint(1, 8))
            case _:
                mutated[place:place] = mutated[place : place + chance.randint(1, 16)]
    return bytes(mutated)


def reaction(attacker: Wire, witness: Wire, body: bytes) -> str:
    """Return the reaction; "silent" means no response although a later request of another client was answered."""
    try:
        attacker.send_frame(body)
        if attacker.is_silent(SILENCE_S):
            witness.ask(message("api_versions", 0))
            if attacker.is_silent(SILENCE_S):
                return "silent"
        return "closed" if attacker.answer_or_close() is None else "answered"
    except (ConnectionEnded, ConnectionResetError):
        return "closed"


def test_mutated_frames_are_answered_or_close_the_connection(bootstrap: str, victim: str) -> None:
    """Each is answered or closes its connection. A few may rightly get no response: a fetch that waits, acks=0."""
    chance = random.Random(SEED)
    seeds = good_requests(victim)
    counts = {"answered": 0, "closed": 0, "silent": 0}
    attacker = Wire(bootstrap)
    with Wire(bootstrap) as witness:
        for _ in range(FUZZED_FRAMES):
            seen = reaction(attacker, witness, mutate(chance, chance.choice(seeds)))
            counts[seen] += 1
            if seen != "answered":
                attacker.socket.close()
                attacker = Wire(bootstrap)
    attacker.socket.close()
    assert counts["silent"] <= FUZZED_FRAMES // 100
    assert counts["answered"] > 0
    assert counts["closed"] > 0


def test_random_bytes_close_the_connection(bootstrap: str) -> None:
    """Random bytes with a correct size, which are almost certainly no request."""
    chance = random.Random(SEED)
    for _ in range(200):
        assert outcome(bootstrap, frame(b"\x7f" + chance.randbytes(chance.randint(1, 200)))) is None


@pytest.mark.parametrize("version", range(14))
def test_truncated_metadata_requests_close_the_connection(bootstrap: str, version: int) -> None:
    """No prefix of a request is a request."""
    topics = [by_name("x")] if version >= 10 else [{"name": "x"}]
    flags: dict[str, bool] = {}
    if version >= 4:
        flags["allow_auto_topic_creation"] = False
    if version >= 8:
        flags["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        flags["include_cluster_authorized_operations"] = False
    whole = encode_request(message("metadata", version, topics=topics, **flags), 1)
    for cut in range(len(whole)):
        assert outcome(bootstrap, frame(whole[:cut])) is None, cut
