"""A cluster in memory behind the ports of the gateway: topics with partitions, users with passwords and rights.

    cluster = MemoryCluster(telemetry=3)
    cluster.allow("anna", write=["telemetry"])      # from now on anna may do nothing else
    anna = cluster.account("anna", "secret")        # the same object each time, as tails are shared by account

Tests hold appends (`hold_appends`) and questions for bounds (`hold_bounds`), fail appends (`fail_append`,
`refuse_records`), break followings (`break_followings`) and delete old records (`delete_before`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import memory_metadata
from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.murmur2 import partition_of
from moldau.gateway.ports import (
    Appended,
    Certificate,
    Credentials,
    FoundRecord,
    NewRecord,
    Password,
    Place,
    Token,
)
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

NEXT_BYTES_MAX = 1 << 20


@dataclass(eq=False)
class MemoryPartition:
    first: int = 0
    records: list[FoundRecord] = field(default_factory=list)
    """Those that are not deleted."""

    @property
    def end(self) -> int:
        return self.first + len(self.records)


@dataclass(eq=False)
class MemoryTopic:
    name: str
    partitions: list[MemoryPartition]
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """Followings that wait for records."""
    append_failures: deque[KafkaError] = field(default_factory=deque)
    record_refusals: deque[KafkaError] = field(default_factory=deque)
    following_failure: KafkaError | None = None
    next_partition: int = 0

    def append(self, record: NewRecord, now_ms: int) -> Place:
        index = self._partition_of(record)
        partition = self.partitions[index]
        offset = partition.end
        timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
        partition.records.append(FoundRecord(index, offset, timestamp_ms, record.key, record.value, record.headers))
        return Place(index, offset)

    def _partition_of(self, record: NewRecord) -> int:
        if record.partition is not None:
            if not 0 <= record.partition < len(self.partitions):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return record.partition
        if record.key is not None:
            return 0 if len(self.partitions) == 1 else partition_of(record.key, len(self.partitions))
        self.next_partition += 1
        return self.next_partition % len(self.partitions)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def records(self) -> list[FoundRecord]:
        return [record for partition in self.partitions for record in partition.records]


class MemoryCluster:
    """The topics are named with their numbers of partitions."""

    def __init__(self, **partitions: int) -> None:
        self.topics: dict[str, MemoryTopic] = {}
        self.passwords: dict[str, str] = {}
        """Users that are not in it may log in with any password."""
        self.committed: dict[tuple[str, str], dict[int, int]] = {}
        """By group and topic."""
        self.groups_with_members: set[str] = set()
        self.append_calls = 0
        self.followings = 0
        """How many are open."""
        self.followings_max = 200
        self.now_ms = 1_700_000_000_000
        self._rights: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._accounts: dict[tuple[str, str], MemoryAccount] = {}
        self._gate: asyncio.Event | None = None
        self._arrivals: asyncio.Queue[None] = asyncio.Queue()
        """One for each append that came to the gate."""
        self.bounds_open = asyncio.Event()
        self.bounds_open.set()
        self.bounds_asked = self.bounds_waiting = 0
        self.answers_open = asyncio.Event()
        """Appends are answered while it is set."""
        self.answers_open.set()
        for name, count in partitions.items():
            self.create_topic(name, count)

    def create_topic(self, name: str, partitions: int = 1) -> MemoryTopic:
        self.topics[name] = MemoryTopic(name, [MemoryPartition() for _ in range(partitions)])
        return self.topics[name]

    @property
    def partition_counts(self) -> Mapping[str, int]:
        return {name: len(topic.partitions) for name, topic in self.topics.items()}

    def delete_topic(self, name: str) -> None:
        self.topics.pop(name).wake()

    def account(self, user: str, password: str = "") -> MemoryAccount:
        key = user, password
        if key not in self._accounts:
            self._accounts[key] = MemoryAccount(self, user, password)
        return self._accounts[key]

    def allow(self, user: str, *, read: Iterable[str] = (), write: Iterable[str] = ()) -> None:
        """From now on the user may read and write only these topics. Without a call everybody may do everything."""
        self._rights[user] = frozenset(read), frozenset(write)

    def hold_appends(self) -> None:
        """Appends wait from now on."""
        self._gate = asyncio.Event()

    async def held_append(self) -> None:
        """Wait until an append has come to the gate; each counts once."""
        await self._arrivals.get()

    def let_appends_go(self) -> None:
        assert self._gate is not None, "no appends are held back"
        self._gate.set()
        self._gate = None

    def hold_bounds(self) -> None:
        """Questions for the bounds of topics wait until `bounds_open` is set; `bounds_waiting` of them do."""
        self.bounds_open.clear()

    def fail_append(self, topic: str, code: ErrorCode, calls: int = 1) -> None:
        """The next calls of `append` fail as a whole."""
        self.topics[topic].append_failures.extend(KafkaError(code) for _ in range(calls))

    def refuse_records(self, topic: str, code: ErrorCode, records: int = 1) -> None:
        """The next records are refused one by one: the others of the call are appended."""
        self.topics[topic].record_refusals.extend(KafkaError(code) for _ in range(records))

    def break_followings(self, topic: str, code: ErrorCode) -> None:
        """Followings fail, those that are open and new ones, until `mend_followings`."""
        self.topics[topic].following_failure = KafkaError(code)
        self.topics[topic].wake()

    def mend_followings(self, topic: str) -> None:
        self.topics[topic].following_failure = None

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        found = self.topics[topic].partitions[partition]
        del found.records[: offset - found.first]
        found.first = offset

    def may(self, user: str, operation: str, topic: str) -> bool:
        rights = self._rights.get(user)
        return rights is None or topic in rights[operation == "write"]

    async def pass_gate(self) -> None:
        if self._gate is not None:
            self._arrivals.put_nowait(None)
        while (gate := self._gate) is not None:
            await gate.wait()


class MemoryAccount:
    """An `Account` of the ports."""

    def __init__(self, cluster: MemoryCluster, user: str, password: str) -> None:
        self._cluster = cluster
        self._user = user
        self._password = password

    @property
    def user(self) -> str:
        return self._user

    async def log_in(self) -> None:
        if self._cluster.passwords.get(self._user, self._password) != self._password:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)

    async def append(self, topic: str, records: Sequence[NewRecord]) -> Appended:
        cluster = self._cluster
        cluster.append_calls += 1
        await self.log_in()
        await asyncio.sleep(0)  # a real append is never done at once
        await cluster.pass_gate()
        found = self._topic(topic, "write")
        if found.append_failures:
            raise found.append_failures.popleft()
        outcome: list[Place | KafkaError] = []
        for record in records:
            if found.record_refusals:
                outcome.append(found.record_refusals.popleft())
            else:
                try:
                    outcome.append(found.append(record, cluster.now_ms))
                except KafkaError as no_such_partition:  # the outcome of this record alone
                    outcome.append(no_such_partition)
        found.wake()
        await cluster.answers_open.wait()
        return outcome

    async def append_values(self, topic: str, values: Sequence[bytes]) -> Appended:
        return await self.append(topic, [NewRecord(value) for value in values])

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        await self.log_in()
        self._cluster.bounds_asked += 1
        self._cluster.bounds_waiting += 1
        await self._cluster.bounds_open.wait()
        self._cluster.bounds_waiting -= 1
        found = self._topic(topic, "read")
        return {index: (each.first, each.end) for index, each in enumerate(found.partitions)}

    async def check_read(self, topic: str) -> None:
        await self.log_in()
        self._topic(topic, "read")

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        await self.log_in()
        return {
            index: next((each.offset for each in partition.records if each.timestamp_ms >= timestamp_ms), partition.end)
            for index, partition in enumerate(self._topic(topic, "read").partitions)
        }

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        await self.log_in()
        return dict(self._cluster.committed.get((group, topic), {}))

    async def commit(self, group: str, topic: str, positions: Mapping[int, int]) -> None:
        await self.log_in()
        if group in self._cluster.groups_with_members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._topic(topic, "read")
        self._cluster.committed.setdefault((group, topic), {}).update(positions)

    def follow(self, topic: str, positions: Mapping[int, int]) -> MemoryFollowing:
        if self._cluster.followings >= self._cluster.followings_max:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return MemoryFollowing(self._cluster, self, topic, positions)

    async def ask(self, api: ApiKey, request: Message) -> Any:
        await self.log_in()
        return memory_metadata.answer(self._cluster, request)

    def client_settings(self) -> Mapping[str, Any]:
        """Nobody answers there."""
        return {"bootstrap.servers": "localhost:1"}

    def _topic(self, name: str, operation: str) -> MemoryTopic:
        if not self._cluster.may(self._user, operation, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name not in self._cluster.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._cluster.topics[name]

    def readable(self, topic: str) -> MemoryTopic:
        return self._topic(topic, "read")


class MemoryFollowing:
    """A `Following` of the ports."""

    def __init__(
        self, cluster: MemoryCluster, account: MemoryAccount, topic: str, positions: Mapping[int, int]
    ) -> None:
        self._cluster = cluster
        self._account = account
        self._topic = topic
        self._positions = dict(positions)
        self._is_closed = False
        cluster.followings += 1

    @property
    def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def next(self) -> Sequence[FoundRecord]:
        await self._account.log_in()
        await asyncio.sleep(0)  # a real fetch is never done at once
        while True:
            assert not self._is_closed, "it was closed"
            topic = self._account.readable(self._topic)
            if topic.following_failure is not None:
                raise topic.following_failure
            if found := self._read(topic):
                return found
            future = asyncio.get_running_loop().create_future()
            topic.waiting.append(future)
            try:
                await future
            finally:
                if future in topic.waiting:
                    topic.waiting.remove(future)

    def _read(self, topic: MemoryTopic) -> list[FoundRecord]:
        found: list[FoundRecord] = []
        size = 0
        for index, position in self._positions.items():
            partition = topic.partitions[index]
            if not partition.first <= position <= partition.end:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            for record in itertools.islice(partition.records, position - partition.first, None):
                size += 100 + len(record.value or b"") + len(record.key or b"")
                if found and size > NEXT_BYTES_MAX:
                    return found
                found.append(record)
                self._positions[index] = record.offset + 1
        return found

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._cluster.followings -= 1


class MemoryAccounts:
    """`Accounts` of the ports. A token is its user; so is the subject of a certificate."""

    def __init__(self, cluster: MemoryCluster, anonymous: str | None = None) -> None:
        """`anonymous` is the user of those without credentials, who are refused if it is None."""
        self._cluster = cluster
        self._anonymous = anonymous
        self.seen: list[Credentials] = []

    async def account(self, credentials: Credentials) -> MemoryAccount:
        self.seen.append(credentials)
        match credentials:
            case Password(user, password):
                account = self._cluster.account(user, password)
            case Token(user) | Certificate(user):
                account = self._cluster.account(user, self._cluster.passwords.get(user, ""))
            case _:
                if self._anonymous is None:
                    raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)
                account = self._cluster.account(self._anonymous)
        await account.log_in()
        return account
