"""What the generators of encoders and decoders share: lines of source, numbered locals, the fields of a version.

Names in the generated code: `m` the message, `out` the bytes written, `b` the bytes read, `p` the position, `end` the
end of the bytes; `v7` and so on are numbered locals. A nested struct is read and written in place.

Names that `codec` provides: `new` creates a struct without calling its constructor, `integers` returns the Struct of an
array of integers, `uvarint_rest` reads a varint from its second byte on, `uvarint` returns the bytes of one, `compact`
is a table of compact lengths, `buffers` are the types of records in memory, `Outgoing` is the buffer of a response;
`invalid` and `too_many` are the exceptions to raise.
"""

from __future__ import annotations

import struct
from typing import Any

from moldau.wire.schema import Field, Message, fields_of

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


class SourceWriter:
    """Lines, indentation, and the objects that the generated code refers to by name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def new(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def refer(self, name: str, value: Any) -> str:
        self.names[name] = value
        return name

    def packer(self, codes: str) -> struct.Struct:
        return struct.Struct(">" + codes)

    def present(self, cls: type[Message]) -> list[Field]:
        return [f for f in fields_of(cls) if self.version in f.versions and f.tag is None]

    def tagged(self, cls: type[Message]) -> list[Field]:
        return sorted(
            (f for f in fields_of(cls) if self.version in f.versions and f.tag is not None), key=lambda f: f.tag or 0
        )

    def code(self, field: Field) -> str | None:
        """Return the struct code of a fixed-size field, else None."""
        if field.is_array or field.struct is not None:
            return None
        return "16s" if field.type_name == "uuid" else FIXED.get(field.type_name)

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable
