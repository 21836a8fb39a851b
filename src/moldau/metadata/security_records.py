"""The records about access: ACLs, SCRAM credentials."""

from __future__ import annotations

from moldau.base.ids import ZERO_UUID, Uuid
from moldau.metadata.record import MetadataRecord


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
