"""The base class of all records of the metadata log. Each subclass has the type number that Apache gives it."""

from __future__ import annotations

from typing import ClassVar

from moldau.wire.schema import Message


class MetadataRecord(Message):
    __slots__ = ()
    TYPE: ClassVar[int]
    FLEXIBLE = 0
