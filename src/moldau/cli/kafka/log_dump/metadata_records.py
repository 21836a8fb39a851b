"""Records of the metadata log that Kafka's own controllers write and Moldau's do not, such as those around a
transaction of many records. They are only printed, never applied.
"""

from __future__ import annotations

from typing import Final

from moldau.metadata.record import MetadataRecord


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


class ClearElrRecord(MetadataRecord):
    __slots__ = ("topic_name",)
    TYPE = 28
    VERSIONS = (0, 0)
    SCHEMA = "topic_name string 0+"

    def __init__(self, topic_name: str = "") -> None:
        self.topic_name = topic_name


KAFKA_ONLY_RECORDS: Final[tuple[type[MetadataRecord], ...]] = (
    ZkMigrationStateRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    ClearElrRecord,
)
