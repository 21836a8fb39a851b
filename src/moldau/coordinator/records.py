"""Base classes for the records of all coordinators: a key carries its type, a value carries its version."""

from __future__ import annotations

from typing import ClassVar, Final

from moldau.wire.schema import Message

NEVER_FLEXIBLE: Final = 2**15


class RecordKey(Message):
    """A key never gets a second version; its type tells it from other keys."""

    __slots__ = ()
    TYPE: ClassVar[int]
    VERSIONS = (0, 0)
    FLEXIBLE = NEVER_FLEXIBLE


class RecordValue(Message):
    __slots__ = ()
    WRITTEN: ClassVar[int] = 0
    """The version that this code writes. Older readers skip tagged fields that they do not know (KIP-915)."""

    def written_version(self) -> int:
        return self.WRITTEN
