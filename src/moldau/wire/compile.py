"""Generates the source of the encoders and decoders that `codec` compiles.

Names in the generated code: `m` the message, `out` the bytes written, `b` the bytes read, `p` the position, `end` the
end of the bytes; `v7` and so on are numbered locals. A nested struct is read and written in place.
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
UUID_BYTES = 16
NULL_STRUCT = b"\xff"
NULL_TAGGED_STRUCT = b"\x00"
"""A nullable struct has a byte before it, 1 if it is present: a signed byte, or a varint if the field is tagged."""


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    writer = _EncoderWriter(version, version >= cls.FLEXIBLE)
    writer.lines.append("def encode(m, out):")
    writer.struct(cls, "m")
    writer.line("return None")
    return "\n".join(writer.lines), writer.names


def decoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    writer = _DecoderWriter(version, version >= cls.FLEXIBLE)
    writer.lines.append("def decode(b, p, end):")
    result = writer.struct(cls)
    writer.line(f"return {result}, p")
    return "\n".join(writer.lines), writer.names


class _Writer:
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


class _EncoderWriter(_Writer):
    def struct(self, cls: type[Message], owner: str) -> None:
        run: list[tuple[str, str]] = []
        for field in self.present(cls):
            code = self.code(field)
            if code is not None:
                run.append((code, f"{owner}.{field.name}"))
                continue
            self.flush(run)
            value = self.new()
            self.line(f"{value} = {owner}.{field.name}")
            self.value(field, value)
        self.flush(run)
        if self.flexible:
            self.tags(cls, owner)

    def flush(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        packer = self.refer("pack_" + codes.replace("?", "B"), self.packer(codes).pack)
        self.line(f"out += {packer}({', '.join(value for _, value in run)})")
        run.clear()

    def value(self, field: Field, value: str) -> None:
        if field.is_array:
            self.array(field, value)
        elif field.struct is not None:
            self.single(field, value)
        elif (code := self.code(field)) is not None:
            self.flush([(code, value)])
        else:
            self.sized(field.type_name, value, self.nullable(field))

    def single(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if not self.nullable(field):
            self.line(f"assert {value} is not None, {field.name!r}")
            self.struct(field.struct, value)
            return
        self.line(f"if {value} is None:")
        self.line(f"    out += {(NULL_STRUCT if field.tag is None else NULL_TAGGED_STRUCT)!r}")
        self.line("else:")
        self.depth += 1
        self.line("out += b'\\x01'")
        self.struct(field.struct, value)
        self.depth -= 1

    def length(self, count: str, code: str) -> None:
        """Write a length: compact (plus one, varint) in flexible versions, else of fixed size."""
        if self.flexible:
            self.line(f"out += uvarint({count} + 1)")
        else:
            self.line(f"out += {self.refer('pack_' + code, self.packer(code).pack)}({count})")

    def null_or(self, value: str, nullable: bool, code: str) -> bool:
        """Write the null case and open `else:` behind it, if the value is nullable; return whether it is."""
        if not nullable:
            return False
        null = b"\x00" if self.flexible else self.packer(code).pack(-1)
        self.line(f"if {value} is None:")
        self.line(f"    out += {null!r}")
        self.line("else:")
        self.depth += 1
        return True

    def sized(self, type_name: str, value: str, nullable: bool) -> None:
        code = "h" if type_name == "string" else "i"
        opened = self.null_or(value, nullable, code)
        if type_name == "string":
            self.line(f"{value} = {value}.encode()")
        self.length(f"size_of({value})" if type_name == "records" else f"len({value})", code)
        self.line(f"put_records(out, {value})" if type_name == "records" else f"out += {value}")
        if opened:
            self.depth -= 1

    def array(self, field: Field, value: str) -> None:
        opened = self.null_or(value, self.nullable(field), "i")
        count = self.new()
        self.line(f"{count} = len({value})")
        self.length(count, "i")
        if field.struct is None and field.type_name in FIXED:
            self.line(f"out += integers({FIXED[field.type_name]!r}, {count}).pack(*{value})")
        else:
            item = self.new()
            self.line(f"for {item} in {value}:")
            self.depth += 1
            if field.struct is not None:
                self.struct(field.struct, item)
            elif field.type_name == "uuid":
                self.line(f"out += {item}")
            else:
                self.sized(field.type_name, item, False)
            self.depth -= 1
        if opened:
            self.depth -= 1

    def tags(self, cls: type[Message], owner: str) -> None:
        """Write the tagged fields that differ from their default."""
        tagged = self.tagged(cls)
        if not tagged:
            self.line("out += b'\\0'")
            return
        written = self.new()
        self.line(f"{written} = []")
        for field in tagged:
            value, outer = self.new(), self.new()
            self.line(f"{value} = {owner}.{field.name}")
            self.line(f"if {self.differs(field, value)}:")
            self.depth += 1
            self.line(f"{outer} = out; out = bytearray()")
            self.value(field, value)
            self.line(f"{written}.append(uvarint({field.tag}) + uvarint(len(out)) + out); out = {outer}")
            self.depth -= 1
        self.line(f"out += uvarint(len({written}))")
        self.line(f"for {written}_ in {written}: out += {written}_")

    def differs(self, field: Field, value: str) -> str:
        if field.is_array and field.default is not None:
            return f"{value} is None or len({value})" if self.nullable(field) else f"len({value})"
        if field.struct is not None and field.default is not None:
            return f"{value} != {self.refer(f'no_{field.name}', field.default)}"
        if field.struct is not None or field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default!r}"


class _DecoderWriter(_Writer):
    def struct(self, cls: type[Message]) -> str:
        values: dict[str, str] = {}
        run: list[tuple[str, str]] = []
        for field in self.present(cls):
            value = values[field.name] = self.new()
            code = self.code(field)
            if code is not None:
                run.append((code, value))
            else:
                self.flush(run)
                self.value(field, value)
        self.flush(run)
        if self.flexible:
            self.tags(cls, values)
        result = self.new()
        arguments = [values.get(f.name) or self.constant(cls, f) for f in fields_of(cls)]
        self.line(f"{result} = {self.refer(cls.__name__, cls)}({', '.join(arguments)})")
        return result

    def constant(self, cls: type[Message], field: Field) -> str:
        """Return the default of a field that the version lacks."""
        return repr(field.default)

    def flush(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        unpacker = self.packer(codes)
        name = self.refer("unpack_" + codes.replace("?", "B"), unpacker.unpack_from)
        self.line(f"{', '.join(value for _, value in run)}, = {name}(b, p); p += {unpacker.size}")
        run.clear()

    def value(self, field: Field, value: str) -> None:
        if field.is_array:
            self.array(field, value)
        elif field.struct is not None:
            self.single(field, value)
        elif (code := self.code(field)) is not None:
            self.flush([(code, value)])
        else:
            self.sized(field.name, field.type_name, value, self.nullable(field))

    def single(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if not self.nullable(field):
            self.line(f"{value} = {self.struct(field.struct)}")
            return
        self.line(f"{value} = None")
        self.line("p += 1")
        self.line("if b[p - 1] < 128:" if field.tag is None else "if b[p - 1]:")
        self.depth += 1
        self.line(f"{value} = {self.struct(field.struct)}")
        self.depth -= 1

    def length(self, count: str, code: str) -> None:
        """Read a length, -1 for null."""
        if self.flexible:
            self.line(f"{count} = b[p]; p += 1")
            self.line(f"if {count} > 127: {count}, p = uvarint_rest(b, p, {count})")
            self.line(f"{count} -= 1")
        else:
            packer = self.packer(code)
            self.line(f"{count}, = {self.refer('unpack_' + code, packer.unpack_from)}(b, p); p += {packer.size}")

    def null_or(self, name: str, value: str, count: str, nullable: bool) -> None:
        """Write the null case and open `else:` behind it."""
        self.line(f"if {count} < 0:")
        if nullable:
            self.line(f"    if {count} != -1: raise malformed({f'{name} has a negative length'!r})")
            self.line(f"    {value} = None")
        else:
            self.line(f"    raise malformed({f'{name} is null or has a negative length'!r})")
        self.line("else:")
        self.depth += 1

    def sized(self, name: str, type_name: str, value: str, nullable: bool) -> None:
        count = self.new()
        self.length(count, "h" if type_name == "string" else "i")
        self.null_or(name, value, count, nullable)
        self.line(f"{count} += p")
        self.line(f"if {count} > end: raise malformed({f'{name} is longer than the message'!r})")
        if type_name == "string":
            self.line(f"{value} = str(b[p:{count}], 'utf-8')")
        elif type_name == "bytes":
            self.line(f"{value} = bytes(b[p:{count}])")
        else:
            self.line(f"{value} = b[p:{count}]")
        self.line(f"p = {count}")
        self.depth -= 1

    def array(self, field: Field, value: str) -> None:
        count = self.new()
        self.length(count, "i")
        self.null_or(field.name, value, count, self.nullable(field))
        min_bytes = self.min_bytes(field)
        self.line(f"if {count} * {min_bytes} > end - p: raise malformed({f'{field.name} claims more than is there'!r})")
        if field.struct is None and field.type_name in FIXED:
            self.line(f"{value} = list(integers({FIXED[field.type_name]!r}, {count}).unpack_from(b, p))")
            self.line(f"p += {count} * {min_bytes}")
        else:
            self.line(f"{value} = []")
            self.line(f"for _ in range({count}):")
            self.depth += 1
            self.line(f"{value}.append({self.element(field)})")
            self.depth -= 1
        self.depth -= 1

    def element(self, field: Field) -> str:
        if field.struct is not None:
            return self.struct(field.struct)
        item = self.new()
        if field.type_name == "uuid":
            self.flush([("16s", item)])
        else:
            self.sized(field.name, field.type_name, item, False)
        return item

    def min_bytes(self, field: Field) -> int:
        """Return the fewest bytes that one element of an array can take, to check a count against the bytes present."""
        if field.struct is not None:
            return max(1, self.min_struct_bytes(field.struct))
        if field.type_name == "uuid":
            return UUID_BYTES
        code = FIXED.get(field.type_name)
        return self.packer(code).size if code else self.min_length_bytes(field.type_name)

    def min_length_bytes(self, type_name: str) -> int:
        if self.flexible:
            return 1
        return 2 if type_name == "string" else 4

    def min_struct_bytes(self, cls: type[Message]) -> int:
        total = 1 if self.flexible else 0
        for field in self.present(cls):
            if (code := self.code(field)) is not None:
                total += self.packer(code).size
            elif field.is_array:
                total += self.min_length_bytes("array")
            elif field.struct is not None:
                total += 1 if self.nullable(field) else self.min_struct_bytes(field.struct)
            else:
                total += self.min_length_bytes(field.type_name)
        return total

    def tags(self, cls: type[Message], values: dict[str, str]) -> None:
        """Read known tags inside their own bounds and skip unknown ones."""
        tagged = self.tagged(cls)
        for field in tagged:
            values[field.name] = self.new()
            self.line(f"{values[field.name]} = {self.constant(cls, field)}")
        left, tag, stop = self.new(), self.new(), self.new()
        self.line(f"{left} = b[p]; p += 1")
        self.line(f"if {left}:")
        self.depth += 1
        self.line(f"if {left} > 127: {left}, p = uvarint_rest(b, p, {left})")
        self.line(f"if {left} * 2 > end - p: raise malformed('more tagged fields claimed than are there')")
        self.line(f"for _ in range({left}):")
        self.depth += 1
        for name in (tag, stop):
            self.line(f"{name} = b[p]; p += 1")
            self.line(f"if {name} > 127: {name}, p = uvarint_rest(b, p, {name})")
        self.line(f"{stop} += p")
        self.line(f"if {stop} > end: raise malformed('a tagged field is longer than the message')")
        for field in tagged:
            self.line(f"if {tag} == {field.tag}:")
            self.depth += 1
            self.value(field, values[field.name])
            self.line(f"if p != {stop}: raise malformed({f'tagged field {field.name} has a wrong size'!r})")
            self.depth -= 1
        self.line(f"p = {stop}")
        self.depth -= 2
