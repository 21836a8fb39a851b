"""What the records of all coordinators have in common: a key that tells its type, a value that tells its version."""

from __future__ import annotations

from typing import ClassVar, Final

from moldau.wire.schema import Message

NEVER_FLEXIBLE: Final = 2**15


class RecordKey(Message):
    """Keys have one version for ever; what tells them apart is their type."""

    __slots__ = ()
    TYPE: ClassVar[int]
    VERSIONS = (0, 0)
    FLEXIBLE = NEVER_FLEXIBLE


class RecordValue(Message):
    __slots__ = ()
    WRITTEN: ClassVar[int] = 0
    """The version that is written. Readers older than a new tagged field skip it (KIP-915)."""

    def written_version(self) -> int:
        return self.WRITTEN
