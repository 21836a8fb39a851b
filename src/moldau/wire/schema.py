"""The base of message classes, and the parser of the schema text in each.

A message is a plain class with slots: one class for all versions; fields that a version lacks have their default. Its
SCHEMA has one line per field: `name type versions [null=versions] [tag=n]`. A type is a primitive or a struct of the
same module, with `[]` in front for an array; versions are `4`, `8-10` or `0+`:

    topics []MetadataRequestTopic 0+ null=1+

No bytes are handled here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from moldau.base.buffers import Buffer


class RecordsSlice(Protocol):
    """Records that are still in a file: their length is known, their bytes are sent without being read into memory."""

    @property
    def length(self) -> int: ...


Records = Buffer | RecordsSlice


SECRET_FIELDS: Final = frozenset(("auth_bytes", "hmac", "salted_password", "server_key", "stored_key"))
"""Fields with passwords or what is as good; `repr` hides their values."""


class Message:
    """Equality and `repr` for all messages; everything else is in the generated classes."""

    __slots__: tuple[str, ...] = ()
    SCHEMA: ClassVar[str] = ""
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int]
    """The first version with compact lengths and tagged fields (KIP-482)."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={'[hidden]' if name in SECRET_FIELDS else repr(getattr(self, name))}" for name in self.__slots__
        )
        return f"{self.__class__.__name__}({fields})"


class MetadataRecord(Message):
    """A record of the metadata log. The newest version is written."""

    __slots__ = ()
    TYPE: ClassVar[int]
    """The number that Apache Kafka gives it, as for all records here."""


class ControlRecord(Message):
    """A control record of the quorum. Its first field is its version."""

    __slots__ = ()
    TYPE: ClassVar[int]


class RecordKey(Message):
    """The key of a coordinator's record. It never gets a second version; its type tells it from other keys."""

    __slots__ = ()
    TYPE: ClassVar[int]
    VERSIONS = (0, 0)
    FLEXIBLE = 2**15


class RecordValue(Message):
    """The value of a coordinator's record."""

    __slots__ = ()
    WRITTEN: ClassVar[int]
    """The version that this code writes. Older readers skip tagged fields that they do not know (KIP-915)."""


def _same(value: object, other: object) -> bool:
    """Compare values; a list read from the wire equals the tuple it was written from."""
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(a == b for a, b in zip(value, other, strict=True))
    return value == other


@dataclass(frozen=True, slots=True)
class Span:
    """An inclusive range of versions."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str) -> Span:
        if text.endswith("+"):
            return cls(int(text[:-1]), sys.maxsize)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))


NEVER = Span(1, 0)

OWN_TAGS_FROM: Final = 10_000
"""Tagged fields that Apache Kafka does not have, and which only our nodes exchange, have tags from this one on. Whoever
does not know a tag skips it (KIP-482)."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type_name: str
    """The name of a primitive type, or of a struct in the same module."""
    is_array: bool
    versions: Span
    nullable: Span
    tag: int | None
    struct: type[Message] | None
    default: Any

    @property
    def is_own(self) -> bool:
        """Whether the field is ours, not one of Apache Kafka's."""
        return self.tag is not None and self.tag >= OWN_TAGS_FROM


_fields: dict[type[Message], tuple[Field, ...]] = {}


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """Return the fields of a message class, in wire order."""
    fields = _fields.get(cls)
    if fields is None:
        module = sys.modules[cls.__module__]
        defaults = getattr(cls.__init__, "__defaults__", None) or ()  # object's, if there are no fields, has none
        lines = [line.split() for line in cls.SCHEMA.strip().splitlines()]
        assert len(lines) == len(defaults) == len(cls.__slots__), cls
        fields = tuple(_field(words, default, module) for words, default in zip(lines, defaults, strict=True))
        _fields[cls] = fields
    return fields


def _field(words: list[str], default: Any, module: object) -> Field:
    name, type_name, versions, *rest = words
    options = dict(word.split("=", 1) for word in rest)
    element = type_name.removeprefix("[]")
    return Field(
        name=name,
        type_name=element,
        is_array=element != type_name,
        versions=Span.parse(versions),
        nullable=Span.parse(options["null"]) if "null" in options else NEVER,
        tag=int(options["tag"]) if "tag" in options else None,
        struct=getattr(module, element) if element[0].isupper() else None,
        default=default,
    )
