"""Records of the metadata log that Kafka's own controllers write and Moldau's do not: tokens, and the records around a
transaction of many records. They are only printed, never applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.metadata.record import MetadataRecord


class DelegationTokenRecord(MetadataRecord):
    __slots__ = (
        "expiration_timestamp",
        "issue_timestamp",
        "max_timestamp",
        "owner",
        "renewers",
        "requester",
        "token_id",
    )
    TYPE = 10
    VERSIONS = (0, 0)
    SCHEMA = """
        owner string 0+
        requester string 0+
        renewers []string 0+
        issue_timestamp int64 0+
        max_timestamp int64 0+
        expiration_timestamp int64 0+
        token_id string 0+
    """

    def __init__(
        self,
        owner: str = "",
        requester: str = "",
        renewers: Sequence[str] = (),
        issue_timestamp: int = 0,
        max_timestamp: int = 0,
        expiration_timestamp: int = 0,
        token_id: str = "",
    ) -> None:
        self.owner = owner
        self.requester = requester
        self.renewers = renewers
        self.issue_timestamp = issue_timestamp
        self.max_timestamp = max_timestamp
        self.expiration_timestamp = expiration_timestamp
        self.token_id = token_id


class ZkMigrationStateRecord(MetadataRecord):
    __slots__ = ("zk_migration_state",)
    TYPE = 21
    VERSIONS = (0, 0)
    SCHEMA = "zk_migration_state int8 0+"

    def __init__(self, zk_migration_state: int = 0) -> None:
        self.zk_migration_state = zk_migration_state


class BeginTransactionRecord(MetadataRecord):
    __slots__ = ("name",)
    TYPE = 23
    VERSIONS = (0, 0)
    SCHEMA = "name string 0+ null=0+ tag=0"

    def __init__(self, name: str | None = None) -> None:
        self.name = name


class EndTransactionRecord(MetadataRecord):
    __slots__ = ()
    TYPE = 24
    VERSIONS = (0, 0)
    SCHEMA = ""

    def __init__(self) -> None:
        """Defined for the schema, which reads the defaults from it."""


class AbortTransactionRecord(MetadataRecord):
    __slots__ = ("reason",)
    TYPE = 25
    VERSIONS = (0, 0)
    SCHEMA = "reason string 0+ null=0+ tag=0"

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason


class RemoveDelegationTokenRecord(MetadataRecord):
    __slots__ = ("token_id",)
    TYPE = 26
    VERSIONS = (0, 0)
    SCHEMA = "token_id string 0+"

    def __init__(self, token_id: str = "") -> None:
        self.token_id = token_id


class ClearElrRecord(MetadataRecord):
    __slots__ = ("topic_name",)
    TYPE = 28
    VERSIONS = (0, 0)
    SCHEMA = "topic_name string 0+"

    def __init__(self, topic_name: str = "") -> None:
        self.topic_name = topic_name


KAFKA_ONLY_RECORDS: Final[tuple[type[MetadataRecord], ...]] = (
    DelegationTokenRecord,
    ZkMigrationStateRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    ClearElrRecord,
)
