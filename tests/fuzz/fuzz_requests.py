"""Targets with a whole node in memory: mutated requests of every served API, and produced batches.

A request goes through a conversation, in pieces or several at once, and its buffer is overwritten afterwards, as on a
real connection. Every response has to be one that its client can read.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

from fuzz_checks import PLANTED, Limits, Violation, check_line
from fuzz_mutations import HUGE, mutate
from fuzz_wire import mutated_batch
from harness.attacked_cluster import CLIENT_PORT, CLUSTER_ID, CONTROLLER_PORT, AttackedCluster, reply_bytes
from harness.random_messages import INTEGERS, Filling, random_message
from harness.sample_requests import RESOURCE, sample_request

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import MalformedData, StorageFault
from moldau.base.topic_names import METADATA_TOPIC
from moldau.security.acls.access import Access
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.security.principals import Principal
from moldau.server.conversation import ConnectionBudget, Conversation, Reply
from moldau.server.router import Router
from moldau.wire.apis import APIS, ApiKey, request_class, response_class
from moldau.wire.codec import Outgoing, Refusal, decoder
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.schema import Message, fields_of

HOST = "198.51.100.7"
FRAME_BYTES_MAX = 1 << 20
LARGE_REQUEST_BYTES = 70_000
VARIANTS = 10
PLAUSIBLE_NAMES = (RESOURCE, RESOURCE, RESOURCE, PLANTED, "", "victim", METADATA_TOPIC, CLUSTER_ID, "retention.ms", "1")
PLAUSIBLE_NUMBERS = (0, 0, 1, 1, 2, -1, 3, 30, 100, 1000, 2**31 - 1)
STEPS_MS = (2,) * 30 + (50, 1000, 5000)
_HEADER = struct.Struct(">hhi")


@cache
def valid_request(api: ApiKey, version: int, variant: int) -> bytes:
    """Return the frame of a request, with its size: a sample, or one with random but plausible fields."""
    if variant == 0:
        request = sample_request(api)
    else:
        rng = Random(f"{api} {version} {variant}")
        request = random_message(request_class(api), version, Filling.MIXED, variant)
        _make_plausible(request, version, rng)
    decoder(request_class(api), version)  # it is compiled now, and not in the case that is measured
    return bytes(request_frame(api, version, 7, PLANTED, request))


def _make_plausible(message: Message, version: int, rng: Random) -> None:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions or value is None:
            continue
        if field.struct is not None:
            for each in value if field.is_array else [value]:
                _make_plausible(each, version, rng)
        elif field.type_name == "string":
            names = [rng.choice(PLAUSIBLE_NAMES) for _ in value] if field.is_array else rng.choice(PLAUSIBLE_NAMES)
            setattr(message, field.name, names)
        elif field.type_name in INTEGERS and not field.is_array and rng.random() < 0.8:
            low, high = INTEGERS[field.type_name]
            setattr(message, field.name, min(max(rng.choice(PLAUSIBLE_NUMBERS), low), high))


class Connection:
    """A client's connection to a router, without a socket."""

    def __init__(self, router: Router, listener: str, access: Access, budget: ConnectionBudget) -> None:
        self._answer = partial(router.answer, listener, f"{HOST}:666", access)
        self.conversation = Conversation(self._recorded, lambda: None, FRAME_BYTES_MAX, budget)
        self._expected: deque[tuple[int, int, int]] = deque()
        self.responses: list[Any] = []
        self.is_open = True

    def _recorded(self, frame: memoryview) -> Reply:
        reply = self._answer(frame)
        if reply is not None:
            key, version, correlation_id = _HEADER.unpack_from(frame)
            if key == ApiKey.API_VERSIONS and not 0 <= version <= APIS[key].highest:
                version = 0
            self._expected.append((key, version, correlation_id))
        return reply

    def feed(self, piece: bytes) -> None:
        """Receive bytes in a buffer that is reused, as that of a socket."""
        buffer = bytearray(piece)
        try:
            self.conversation.feed(memoryview(buffer))
            while self.collect():
                if not self.conversation.resume():
                    break
        except MalformedData as refused:
            self.is_open = False
            _check_refusal(refused)
        buffer[:] = b"\xaa" * len(buffer)

    def collect(self) -> bool:
        """Read the responses that are ready; whether there were any."""
        found = False
        while (reply := self.conversation.next_reply()) is not None:
            found = True
            expected = self._expected.popleft()
            if isinstance(reply, Refusal):
                self.is_open = False
                _check_refusal(MalformedData(reply.refusal))
                return False
            if not reply:
                if not reply.pause_ms:
                    raise Violation("a response could not be written")
                continue
            self._read(reply, *expected)
        return found

    def _read(self, reply: Outgoing, key: int, version: int, correlation_id: int) -> None:
        data = reply_bytes(reply)
        if struct.unpack_from(">i", data)[0] != len(data) - 4:
            raise Violation(f"{ApiKey(key).name} v{version}: the size of the response is wrong")
        found_id, response = read_response(response_class(key), memoryview(data)[4:], key, version)
        if found_id != correlation_id:
            raise Violation(f"{ApiKey(key).name} v{version}: a response to another request")
        self.responses.append(response)


def _check_refusal(refused: MalformedData) -> None:
    """Check why a connection is closed: the client's mistake, in one line without its bytes."""
    cause = refused.__cause__
    if "failed here" in str(refused) and not isinstance(cause, (MalformedData, StorageFault)):
        raise Violation("a handler failed") from cause
    check_line(str(refused).encode("unicode_escape").decode())


class Made(NamedTuple):
    port: int
    who: int
    pieces: tuple[bytes, ...]
    step_ms: int


class _OnANode:
    """The node of a block, with three clients: a super user, one with some ACLs, and one without any."""

    block_cases = 1000

    def begin(self) -> None:
        self.cluster = AttackedCluster(1, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:admin")
        self.node = self.cluster.nodes[1]
        assert self.node.authorizer is not None
        self.node.authorizer.change(_some_acls())
        self.accesses = [self.node.access(Principal("User", name), HOST) for name in ("admin", "some", "nobody")]
        self.budget = ConnectionBudget(4 * FRAME_BYTES_MAX)
        self.numbers = itertools.count()

    def connect(self, port: int, who: int) -> Connection:
        listener = "PLAINTEXT" if port == CLIENT_PORT + 1 else "CONTROLLER"
        return Connection(self.cluster.routers[port], listener, self.accesses[who], self.budget)

    def close(self, connection: Connection) -> None:
        connection.conversation.close()
        for side in (self.node.broker_side, self.node.controller_side):
            assert side is not None
            side.connection_gone(f"{HOST}:666")
        if self.budget.free != 4 * FRAME_BYTES_MAX:
            raise Violation("the memory for incomplete frames was not released")
        if self.cluster.faults:
            raise Violation("the node reported a fault") from self.cluster.faults[0]

    def end(self) -> None:
        self.cluster.timers.advance(60_000)
        if self.cluster.faults:
            raise Violation("the node reported a fault") from self.cluster.faults[0]


def _some_acls() -> list[AclBinding]:
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    return [
        AclBinding(kind, RESOURCE, PatternType.LITERAL, "User:some", "*", AclOperation.ALL, Permission.ALLOW)
        for kind in kinds
    ]


class Requests(_OnANode):
    """Requests of every served API and version, to the broker and to the controller of a node."""

    name = "requests"
    limits = Limits(operations=400_000, per_byte=400, memory=20_000_000, memory_per_byte=400)

    def __init__(self) -> None:
        self._routes: list[tuple[int, ApiKey, tuple[int, int]]] = []

    def begin(self) -> None:
        super().begin()
        if not self._routes:
            self._routes = [
                (port, ApiKey(key), versions)
                for port in (CLIENT_PORT + 1, CONTROLLER_PORT + 1)
                for key, versions in self.cluster.routers[port].served().items()
            ]

    def make(self, rng: Random) -> Made:
        port, api, versions = rng.choice(self._routes)
        version = rng.randint(*versions)
        frame = bytearray(valid_request(api, version, rng.randrange(VARIANTS)))
        chance = rng.random()
        if chance < 0.85:
            body = mutate(frame[8:], rng) if chance < 0.75 else mutate(frame[4:], rng)
            frame[8 if chance < 0.75 else 4 :] = body
            frame[:4] = (len(frame) - 4).to_bytes(4, "big")
            if rng.random() < 0.05:  # large requests are decoded in a thread; bytes after a request are ignored
                frame += bytes(LARGE_REQUEST_BYTES)
                frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        elif chance < 0.9:
            frame[:4] = rng.choice(HUGE)[:4].ljust(4, b"\1")
        if rng.random() < 0.05:
            frame += valid_request(ApiKey.API_VERSIONS, 3, 0)
        pieces = [bytes(frame)]
        if rng.random() < 0.1:
            at = sorted(rng.randrange(len(frame) + 1) for _ in range(rng.randint(1, 3)))
            pieces = [bytes(frame[start:end]) for start, end in zip([0, *at], [*at, len(frame)], strict=True)]
        return Made(port, rng.choice((0, 0, 1, 1, 2)), tuple(pieces), rng.choice(STEPS_MS))

    def size_of(self, made: Made) -> int:
        return sum(map(len, made.pieces))

    def run(self, made: Made) -> None:
        if next(self.numbers) % 50 == 0:
            self._restore_topic()
        connection = self.connect(made.port, made.who)
        for piece in made.pieces:
            if connection.is_open:
                connection.feed(piece)
        self.cluster.timers.advance(made.step_ms)
        connection.collect()
        self.close(connection)

    def _restore_topic(self) -> None:
        """Create the topic that the requests name, if one of them has deleted it."""
        if RESOURCE not in self.node.current.image.topics:
            connection = self.connect(CLIENT_PORT + 1, 0)
            request = CreateTopicsRequest([CreatableTopic(RESOURCE, 2, 1)], timeout_ms=1000)
            connection.feed(bytes(request_frame(ApiKey.CREATE_TOPICS, 7, 1, None, request)))
            self.cluster.timers.advance(20)
            self.close(connection)


TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "gzipped": {"compression.type": "gzip"},
    "zstd": {"compression.type": "zstd"},
    "small": {"max.message.bytes": "1000", "segment.bytes": "1048576"},
    "strict": {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
}


class Produced(_OnANode):
    """Batches that are produced to topics with different configs. What is accepted can be read back."""

    name = "produce"
    limits = Limits(operations=100_000, per_byte=400, memory=20_000_000, memory_per_byte=400)

    def begin(self) -> None:
        super().begin()
        topics = [
            CreatableTopic(name, 1, 1, configs=[CreatableTopicConfig(*each) for each in configs.items()])
            for name, configs in TOPICS.items()
        ]
        made = self.cluster.ask(CreateTopicsRequest(topics), ApiKey.CREATE_TOPICS, 7, node=1, to_controller=False)
        assert all(each.error_code == 0 for each in made.topics), made

    def make(self, rng: Random) -> tuple[str, bytes, int]:
        return rng.choice(tuple(TOPICS)), bytes(mutated_batch(rng)), rng.choice((1, 1, -1, 0))

    def size_of(self, made: tuple[str, bytes, int]) -> int:
        return len(made[1])

    def run(self, made: tuple[str, bytes, int]) -> None:
        topic, records, acks = made
        assert self.node.broker_side is not None
        log = self.node.broker_side.partitions.get(topic, 0).log
        end_before = log.end_offset
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, records)])]
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)
        connection = self.connect(CLIENT_PORT + 1, 0)
        connection.feed(bytes(request_frame(ApiKey.PRODUCE, 9, 1, PLANTED, request)))
        self.cluster.timers.advance(2)
        connection.collect()
        self.close(connection)
        if acks == 0:
            return
        if not connection.responses:
            raise Violation("a produce request was not answered")
        response: ProduceResponse = connection.responses[0]
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == 0 and answer.base_offset == end_before:
            self._read_back(topic, end_before)
        elif answer.error_code and log.end_offset != end_before:
            raise Violation("a refused batch is in the log")

    def _read_back(self, topic: str, offset: int) -> None:
        assert self.node.broker_side is not None
        log = self.node.broker_side.partitions.get(topic, 0).log
        found = log.read(offset, 1 << 20, log.end_offset)
        if found is None:
            raise Violation("an accepted batch is not in the log")
        base_offset, length = struct.unpack_from(">qi", found.read())
        if base_offset != offset or length + 12 != found.length:
            raise Violation("an accepted batch cannot be read back")
