"""What the fronts, HTTP and MQTT, need of Kafka. `kafka` is the real thing; tests of the fronts have one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from moldau.base.errors import KafkaError
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

Headers = tuple[tuple[str, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record to append."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None: now."""
    partition: int | None = None
    """None: the key decides, as in every Kafka client; records without a key are spread."""


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class FoundRecord(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Appended = Sequence[Place | KafkaError]
"""What became of each record: its place, or why it was refused."""


class Password(NamedTuple):
    """By HTTP's Basic, or in MQTT's CONNECT."""

    user: str
    password: str


class Token(NamedTuple):
    """By HTTP's Bearer: a token of OAuth, which the brokers check."""

    text: str


class Certificate(NamedTuple):
    """Of a TLS connection that the gateway has verified."""

    subject: str
    """The distinguished name, as Java writes it."""


Credentials = Password | Token | Certificate | None
"""Who a device says it is; None: nobody."""


class Following(Protocol):
    """Some partitions of a topic, or of a view, that are read from given offsets on and then followed."""

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset of each partition: behind all records that `next` has returned."""
        ...

    async def next(self) -> Sequence[FoundRecord]:
        """Wait for records and return them, those of a partition in order; a bounded number of bytes. It goes on
        through changes of leaders and restarts of brokers. If the waiting is cancelled, the next call returns what it
        would have returned. KafkaError if it cannot go on: no right, no topic."""
        ...

    def close(self) -> None: ...


class Account(Protocol):
    """The cluster as one of its users sees it."""

    @property
    def user(self) -> str: ...

    async def log_in(self) -> None:
        """Connect, so that a wrong password is known at once. KafkaError if the cluster refuses the user or cannot be
        reached."""
        ...

    async def append(self, topic: str, records: Sequence[NewRecord]) -> Appended:
        """Append records, and return when all in-sync replicas have them (acks=all). A record that is sent again after
        a failure is there once. Records of one call and partition stay in order, and those of later calls follow.

        It waits while too many bytes of this account are under way: whoever reads from a device must await this before
        reading on. KafkaError if none could be appended: no such topic, no right.
        """
        ...

    async def append_values(self, topic: str, values: Sequence[bytes]) -> Appended:
        """Append values without keys and headers as `append` does, in half the time. All go to one partition."""
        ...

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Return the first offset and the end of each partition."""
        ...

    async def check_read(self, topic: str) -> None:
        """KafkaError if the user may not read the records of the topic; `bounds` needs less than that right."""
        ...

    async def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        """Return for each partition the offset of its first record that is not older; its end if there is none."""
        ...

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offset of each partition that a group has committed."""
        ...

    async def commit(self, group: str, topic: str, positions: Mapping[int, int]) -> None:
        """Commit offsets of a group that has no members. KafkaError UNKNOWN_MEMBER_ID if it has some."""
        ...

    def follow(self, topic: str, positions: Mapping[int, int]) -> Following:
        """Read these partitions from these offsets on."""
        ...

    async def ask(self, api: ApiKey, request: Message) -> Any:
        """Return the response of a broker to a request about metadata; a change is sent to the controller. KafkaError
        if there is none."""
        ...

    def client_settings(self) -> Mapping[str, Any]:
        """Return the settings with which librdkafka connects as this user. KafkaError if it cannot."""
        ...


class Accounts(Protocol):
    """The users of the cluster."""

    async def account(self, credentials: Credentials) -> Account:
        """Return the account of whoever has these credentials: the same one as before, while it is used. KafkaError,
        SASL_AUTHENTICATION_FAILED, if the cluster or the gateway refuses them; another one if no broker answers."""
        ...
