"""The same random conversation of two members of a share group with two brokers: fetches with limits and modes, and
acknowledgements of all kinds, also wrong ones. What may not depend on the broker is compared after each request.

Records that are released come with a request of their own: whether a fetch beside a release gets them depends on how
fast the broker writes it.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from apache_node import Login, Side
from harness.patience import wait_until

from moldau.wire.apis import ApiKey
from moldau.wire.messages import share_acknowledge, share_fetch
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from moldau.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

TOPIC = "shared"
GROUP_CONFIG = 32
MEMBERS = ("first", "second")
WAIT_MS = 200
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Held(NamedTuple):
    first: int
    last: int


class Answer(NamedTuple):
    """What is compared."""

    error: int
    data_error: int
    said_error: int
    acquired: tuple[tuple[int, int, int], ...]


class Talk:
    """One broker's side of the conversation."""

    def __init__(self, side: Side, group_id: str) -> None:
        self.name = side.name
        self.group_id = group_id
        self._admin = side.connect()
        self._logins: dict[str, Login] = {member: side.connect() for member in MEMBERS}
        self._ids = {member: str(uuid.uuid4()) for member in MEMBERS}
        self.epochs = dict.fromkeys(MEMBERS, 0)
        self.topic_id = b""

    def close(self) -> None:
        for login in (self._admin, *self._logins.values()):
            login.__exit__()

    def begin(self) -> None:
        topic = CreateTopicsRequest([CreatableTopic(self.group_id, 1, 1)], timeout_ms=10_000)
        self._admin.ask(ApiKey.CREATE_TOPICS, topic, 7)
        configs = [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
        group = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_CONFIG, self.group_id, configs)])
        assert self._admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, group, 1).responses[0].error_code == 0
        for member in MEMBERS:
            self._join(member)

    def _join(self, member: str) -> None:
        epoch = 0

        def assigned() -> bool:
            nonlocal epoch
            names = [self.group_id] if epoch == 0 else None
            request = ShareGroupHeartbeatRequest(self.group_id, self._ids[member], epoch, None, names)
            answer = self._logins[member].ask(ApiKey.SHARE_GROUP_HEARTBEAT, request, 1)
            epoch = 0 if answer.error_code else answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                self.topic_id = answer.assignment.topic_partitions[0].topic_id
                return True
            return False

        wait_until(assigned, f"{self.name} assigns the partition")

    def produce(self, count: int) -> None:
        batch = build_batch([Record(NEXT_OFFSET, 0, None, b"v")] * count)
        data = TopicProduceData(name=self.group_id, partition_data=[PartitionProduceData(0, bytes(batch))])
        answer = self._admin.ask(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def fetch(self, member: str, said: Sequence[Said], epoch: int, **wanted: Any) -> Answer:
        batches = [share_fetch.AcknowledgementBatch(*each) for each in said]
        partitions = [FetchPartition(0, batches)] if batches or epoch == 0 else []
        request = ShareFetchRequest(
            self.group_id,
            self._ids[member],
            epoch,
            WAIT_MS,
            1,
            1 << 20,
            topics=[FetchTopic(self.topic_id, partitions)] if partitions else [],
            **wanted,
        )
        answer = self._logins[member].ask(ApiKey.SHARE_FETCH, request, 2)
        found = [data for topic in answer.responses for data in topic.partitions]
        acquired = tuple(
            (each.first_offset, each.last_offset, each.delivery_count)
            for data in found
            for each in data.acquired_records
        )
        data_error = next((data.error_code for data in found if data.error_code), 0)
        said_error = next((data.acknowledge_error_code for data in found if data.acknowledge_error_code), 0)
        return Answer(answer.error_code, data_error, said_error, acquired)

    def acknowledge(self, member: str, said: Sequence[Said], epoch: int) -> Answer:
        batches = [share_acknowledge.AcknowledgementBatch(*each) for each in said]
        topics = [AcknowledgeTopic(self.topic_id, [AcknowledgePartition(0, batches)])]
        request = ShareAcknowledgeRequest(self.group_id, self._ids[member], epoch, topics=topics)
        answer = self._logins[member].ask(ApiKey.SHARE_ACKNOWLEDGE, request, 2)
        found = [data for topic in answer.responses for data in topic.partitions]
        return Answer(answer.error_code, next((each.error_code for each in found if each.error_code), 0), 0, ())


Said = tuple[int, int, Sequence[int]]


class Conversation:
    """Chooses what comes next, by a seed and by what the first broker has answered."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.held: dict[str, list[Held]] = {member: [] for member in MEMBERS}
        self.end = 0

    def steps(self, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield what to do, who does it, and with what."""
        choose = self._random
        for _ in range(count):
            member = choose.choice(MEMBERS)
            kind = choose.choices(("produce", "fetch", "acknowledge", "wrong", "epoch", "final"), (3, 6, 6, 3, 1, 1))[0]
            if kind == "produce":
                yield kind, member, {"count": choose.choice((1, 2, 5, 20))}
            elif kind == "fetch":
                yield kind, member, {"wanted": self._wanted(), "said": self._some(member, (ACCEPT, REJECT))}
            elif kind == "acknowledge":
                yield kind, member, {"said": self._some(member, (ACCEPT, RELEASE, REJECT, 0))}
            elif kind == "wrong":
                yield "acknowledge", member, {"said": self._wrong()}
            else:
                if kind == "final":  # what it held would be released at some time after the response
                    held, self.held[member] = self.held[member], []
                    yield "acknowledge", member, {"said": sorted((*each, [ACCEPT]) for each in held)}
                yield kind, member, {}

    def _wanted(self) -> dict[str, int]:
        choose = self._random
        return {
            "max_records": choose.choice((1, 3, 10, 500)),
            "batch_size": choose.choice((1, 5, 500)),
            "share_acquire_mode": choose.choice((0, 0, 1)),
        }

    def _some(self, member: str, types: Sequence[int]) -> list[Said]:
        """Take some of what a member holds, and say something about it."""
        choose, said = self._random, []
        kept: list[Held] = []
        for each in self.held[member]:
            first = choose.randint(each.first, each.last)
            last = choose.randint(first, each.last)
            if choose.random() < 0.3:
                kept.append(each)
                continue
            one = choose.random() < 0.6
            kinds = [choose.choice(types)] if one else [choose.choice(types) for _ in range(last - first + 1)]
            said.append((first, last, kinds))
            kept += [Held(*rest) for rest in ((each.first, first - 1), (last + 1, each.last)) if rest[0] <= rest[1]]
        self.held[member] = kept
        return sorted(said)

    def _wrong(self) -> list[Said]:
        choose = self._random
        first = choose.randint(0, self.end + 3)
        return choose.choice(
            [
                [(first, first + choose.randint(0, 3), [ACCEPT])],
                [(first, first - 1, [ACCEPT])],
                [(first, first + 1, [ACCEPT, REJECT, ACCEPT])],
                [(first, first, [9])],
                [(first, first, [RENEW])],
                [(first + 5, first + 6, [ACCEPT]), (first, first + 1, [ACCEPT])],
                [(first, first, [])],
            ]
        )
