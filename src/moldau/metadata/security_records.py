"""The records about access: ACLs, SCRAM credentials, delegation tokens, client quotas."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.ids import ZERO_UUID, Uuid
from moldau.metadata.record import MetadataRecord
from moldau.wire.schema import Message


class UserScramCredentialRecord(MetadataRecord):
    __slots__ = ("iterations", "mechanism", "name", "salt", "server_key", "stored_key")
    TYPE = 11
    VERSIONS = (0, 0)
    SCHEMA = """
        name string 0+
        mechanism int8 0+
        salt bytes 0+
        stored_key bytes 0+
        server_key bytes 0+
        iterations int32 0+
    """

    def __init__(
        self,
        name: str = "",
        mechanism: int = 0,
        salt: bytes = b"",
        stored_key: bytes = b"",
        server_key: bytes = b"",
        iterations: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations


class RemoveUserScramCredentialRecord(MetadataRecord):
    __slots__ = ("mechanism", "name")
    TYPE = 22
    VERSIONS = (0, 0)
    SCHEMA = """
        name string 0+
        mechanism int8 0+
    """

    def __init__(self, name: str = "", mechanism: int = 0) -> None:
        self.name = name
        self.mechanism = mechanism


class QuotaEntity(Message):
    """A part of the entity of a quota; without a name it is the default of its type."""

    __slots__ = ("entity_name", "entity_type")
    SCHEMA = """
        entity_type string 0+
        entity_name string 0+ null=0+
    """

    def __init__(self, entity_type: str = "", entity_name: str | None = None) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class ClientQuotaRecord(MetadataRecord):
    __slots__ = ("entity", "key", "remove", "value")
    TYPE = 14
    VERSIONS = (0, 0)
    SCHEMA = """
        entity []QuotaEntity 0+
        key string 0+
        value float64 0+
        remove bool 0+
    """

    def __init__(
        self, entity: Sequence[QuotaEntity] = (), key: str = "", value: float = 0.0, remove: bool = False
    ) -> None:
        self.entity = entity
        self.key = key
        self.value = value
        self.remove = remove


class AccessControlEntryRecord(MetadataRecord):
    __slots__ = (
        "host",
        "id",
        "operation",
        "pattern_type",
        "permission_type",
        "principal",
        "resource_name",
        "resource_type",
    )
    TYPE = 18
    VERSIONS = (0, 0)
    SCHEMA = """
        id uuid 0+
        resource_type int8 0+
        resource_name string 0+
        pattern_type int8 0+
        principal string 0+
        host string 0+
        operation int8 0+
        permission_type int8 0+
    """

    def __init__(
        self,
        id: Uuid = ZERO_UUID,
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 0,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.id = id
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class RemoveAccessControlEntryRecord(MetadataRecord):
    __slots__ = ("id",)
    TYPE = 19
    VERSIONS = (0, 0)
    SCHEMA = "id uuid 0+"

    def __init__(self, id: Uuid = ZERO_UUID) -> None:
        self.id = id


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


class RemoveDelegationTokenRecord(MetadataRecord):
    __slots__ = ("token_id",)
    TYPE = 26
    VERSIONS = (0, 0)
    SCHEMA = "token_id string 0+"

    def __init__(self, token_id: str = "") -> None:
        self.token_id = token_id
