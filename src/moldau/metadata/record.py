"""What all records of the metadata log are, whatever they tell: one class each, with the type that Apache gives it."""

from __future__ import annotations

from typing import ClassVar

from moldau.wire.schema import Message


class MetadataRecord(Message):
    __slots__ = ()
    TYPE: ClassVar[int]
    FLEXIBLE = 0
