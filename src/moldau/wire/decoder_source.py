"""Generates the source of the decoders that `codec` compiles. Every length is checked against the bytes present. Reads
of fixed size are not: beyond the end they raise IndexError or struct.error (`codec.UNREADABLE`).
"""

from __future__ import annotations

from typing import Any

from moldau.base.limits import STRING_BYTES_MAX, TAGS_MAX
from moldau.wire.schema import Field, Message, fields_of
from moldau.wire.source_writer import FIXED, SourceWriter

UUID_BYTES = 16
REQUEST_ELEMENTS_MAX = 50_000
"""Most elements of one array in a request: decoding each takes time, and decoding cannot be split into turns."""


def decoder_source(
    cls: type[Message], version: int, elements_max: int, total_max: int | None
) -> tuple[str, dict[str, Any]]:
    is_request = cls.__name__.endswith("Request")
    writer = DecoderWriter(version, version >= cls.FLEXIBLE, is_request, elements_max, total_max)
    writer.lines.append("def decode(b, p, end):")
    if total_max is not None:
        writer.line("total = 0")
    result = writer.write_struct(cls)
    writer.line(f"return {result}, p")
    return "\n".join(writer.lines), writer.names


class DecoderWriter(SourceWriter):
    """Values of fixed size wait in `pending_fixed`, so that one call unpacks them, with the length that follows."""

    def __init__(
        self, version: int, flexible: bool, is_request: bool, elements_max: int, total_max: int | None
    ) -> None:
        super().__init__(version, flexible)
        self.is_request = is_request
        self.elements_max = elements_max
        self.total_max = total_max
        self.pending_fixed: list[tuple[str, str]] = []

    def write_struct(self, cls: type[Message]) -> str:
        values: dict[str, str] = {}
        for field in self.present(cls):
            value = values[field.name] = self.new()
            code = self.code(field)
            if code is not None:
                self.pending_fixed.append((code, value))
            else:
                self.write_value(field, value)
        self.flush()
        if self.flexible:
            self.write_tags(cls, values)
        result = self.new()
        # The fields are set here: __init__ does nothing else, and would cost each struct a call.
        self.line(f"{result} = new({self.refer(cls.__name__, cls)})")
        for f in fields_of(cls):
            self.line(f"{result}.{f.name} = {values.get(f.name) or self.constant(f)}")
        return result

    def constant(self, field: Field) -> str:
        """Return the default of a field that the version or the message lacks."""
        return repr(field.default)

    def flush(self) -> None:
        if not self.pending_fixed:
            return
        codes = "".join(code for code, _ in self.pending_fixed)
        unpacker = self.packer(codes)
        name = self.refer("unpack_" + codes.replace("?", "B"), unpacker.unpack_from)
        self.line(f"{', '.join(value for _, value in self.pending_fixed)}, = {name}(b, p); p += {unpacker.size}")
        self.pending_fixed.clear()

    def write_value(self, field: Field, value: str) -> None:
        if field.is_array:
            self.write_array(field, value)
        elif field.struct is not None:
            self.write_nested_struct(field, value)
        elif (code := self.code(field)) is not None:
            self.pending_fixed.append((code, value))
            self.flush()
        else:
            self.write_sized(field.name, field.type_name, value, self.nullable(field))

    def write_nested_struct(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if not self.nullable(field):
            self.line(f"{value} = {self.write_struct(field.struct)}")
            return
        self.flush()
        self.line(f"{value} = None")
        self.line("p += 1")
        # Null is -1 as a signed byte, or 0 as a varint if tagged.
        self.line("if b[p - 1] < 128:" if field.tag is None else "if b[p - 1]:")
        self.depth += 1
        self.line(f"{value} = {self.write_struct(field.struct)}")
        self.depth -= 1

    def write_length(self, count: str, code: str) -> None:
        """Read a length, -1 for null."""
        if self.flexible:
            self.flush()
            self.line(f"{count} = b[p]; p += 1")
            self.line(f"if {count} > 127: {count}, p = uvarint_rest(b, p, {count})")
            self.line(f"{count} -= 1")
        else:
            self.pending_fixed.append((code, count))
            self.flush()

    def write_null_case(self, name: str, value: str, count: str, nullable: bool) -> None:
        """Write the null case and open `else:` behind it. The caller writes the else branch and reduces `depth`."""
        self.line(f"if {count} < 0:")
        if nullable:
            self.line(f"    if {count} != -1: raise invalid({f'{name} has a negative length'!r})")
            self.line(f"    {value} = None")
        else:
            self.line(f"    raise invalid({f'{name} is null or has a negative length'!r})")
        self.line("else:")
        self.depth += 1

    def write_sized(self, name: str, type_name: str, value: str, nullable: bool) -> None:
        count = self.new()
        self.write_length(count, "h" if type_name == "string" else "i")
        self.write_null_case(name, value, count, nullable)
        if type_name == "string" and self.is_request and self.flexible:
            message = f"{name} is longer than {STRING_BYTES_MAX} bytes"
            self.line(f"if {count} > {STRING_BYTES_MAX}: raise invalid({message!r})")
        self.line(f"{count} += p")
        self.line(f"if {count} > end: raise invalid({f'{name} is longer than the message'!r})")
        if type_name == "string":
            self.line(f"{value} = str(b[p:{count}], 'utf-8')")
        elif type_name == "bytes":
            self.line(f"{value} = bytes(b[p:{count}])")
        else:
            self.line(f"{value} = b[p:{count}]")
        self.line(f"p = {count}")
        self.depth -= 1

    def write_array(self, field: Field, value: str) -> None:
        count = self.new()
        self.write_length(count, "i")
        self.write_null_case(field.name, value, count, self.nullable(field))
        min_bytes = self.min_bytes(field)
        self.line(f"if {count} * {min_bytes} > end - p: raise invalid({f'{field.name} claims more than is there'!r})")
        if self.is_request:
            elements_max = REQUEST_ELEMENTS_MAX if field.type_name in FIXED else self.elements_max
            message = f"{field.name} has more than {elements_max:,} elements"
            self.line(f"if {count} > {elements_max}: raise too_many({message!r})")
            if self.total_max is not None and field.type_name not in FIXED:
                self.line(f"total += {count}")
                message = f"its arrays have more than {self.total_max:,} elements"
                self.line(f"if total > {self.total_max}: raise too_many({message!r})")
        if field.struct is None and field.type_name in FIXED:
            self.line(f"{value} = list(integers({FIXED[field.type_name]!r}, {count}).unpack_from(b, p))")
            self.line(f"p += {count} * {min_bytes}")
        else:
            self.line(f"{value} = []")
            self.line(f"for _ in range({count}):")
            self.depth += 1
            self.line(f"{value}.append({self.write_element(field)})")
            self.depth -= 1
        self.depth -= 1

    def write_element(self, field: Field) -> str:
        if field.struct is not None:
            return self.write_struct(field.struct)
        item = self.new()
        if field.type_name == "uuid":
            self.pending_fixed.append(("16s", item))
            self.flush()
        else:
            self.write_sized(field.name, field.type_name, item, False)
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

    def write_tags(self, cls: type[Message], values: dict[str, str]) -> None:
        """Read known tags inside their own bounds and skip unknown ones."""
        tagged = self.tagged(cls)
        for field in tagged:
            values[field.name] = self.new()
            self.line(f"{values[field.name]} = {self.constant(field)}")
        left, tag, stop = self.new(), self.new(), self.new()
        self.line(f"{left} = b[p]; p += 1")
        self.line(f"if {left}:")
        self.depth += 1
        self.line(f"if {left} > 127: {left}, p = uvarint_rest(b, p, {left})")
        if self.is_request:
            self.line(f"if {left} > {TAGS_MAX}: raise invalid('more than {TAGS_MAX} tagged fields in one struct')")
        self.line(f"if {left} * 2 > end - p: raise invalid('more tagged fields claimed than are there')")
        self.line(f"for _ in range({left}):")
        self.depth += 1
        for name in (tag, stop):
            self.line(f"{name} = b[p]; p += 1")
            self.line(f"if {name} > 127: {name}, p = uvarint_rest(b, p, {name})")
        self.line(f"{stop} += p")
        self.line(f"if {stop} > end: raise invalid('a tagged field is longer than the message')")
        for field in tagged:
            self.line(f"if {tag} == {field.tag}:")
            self.depth += 1
            self.write_value(field, values[field.name])
            self.line(f"if p != {stop}: raise invalid({f'tagged field {field.name} has a wrong size'!r})")
            self.depth -= 1
        self.line(f"p = {stop}")
        self.depth -= 2
