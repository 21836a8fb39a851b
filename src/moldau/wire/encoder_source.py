"""Generates the source of the encoders that `codec` compiles: of a message alone, and of a whole response frame."""

from __future__ import annotations

from typing import Any

from moldau.wire.schema import Field, Message
from moldau.wire.source_writer import FIXED, SourceWriter

NULL_STRUCT = b"\xff"
NULL_TAGGED_STRUCT = b"\x00"
"""A nullable struct has a byte before it, 1 if it is present: a signed byte, or a varint if the field is tagged."""
SIZE_BYTES = 4
NO_TAGS = ("b", "0")
"""The code and value of an empty list of tagged fields."""
COMPACT_MAX = 511
"""Compact lengths below this are in a table."""


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    writer = EncoderWriter(version, version >= cls.FLEXIBLE)
    writer.lines.append("def encode(m, out):")
    writer.write_struct(cls, "m")
    writer.put("return None")
    return "\n".join(writer.lines), writer.names


def framer_source(cls: type[Message], version: int, has_header_tags: bool) -> tuple[str, dict[str, Any]]:
    """The same with the size and the header of a response before it: both are written with the first fields."""
    writer = EncoderWriter(version, version >= cls.FLEXIBLE)
    writer.lines.append("def frame(correlation_id, m):")
    writer.begins_frame = True
    writer.pending_fixed += [("i", "0"), ("i", "correlation_id"), *([NO_TAGS] if has_header_tags else [])]
    writer.write_struct(cls, "m")
    writer.write_frame_size()
    writer.line("return out")
    return "\n".join(writer.lines), writer.names


class EncoderWriter(SourceWriter):
    """Values of fixed size wait in `pending_fixed`, so that one call packs them. `put` writes everything else, behind
    them."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.pending_fixed: list[tuple[str, str]] = []
        self.begins_frame = self.has_records = False

    def put(self, text: str) -> None:
        self.flush()
        self.line(text)

    def flush(self) -> None:
        if not self.pending_fixed:
            return
        codes = "".join(code for code, _ in self.pending_fixed)
        packer = self.refer("pack_" + codes.replace("?", "B"), self.packer(codes).pack)
        packed = f"{packer}({', '.join(value for _, value in self.pending_fixed)})"
        self.line(f"out = Outgoing({packed})" if self.begins_frame else f"out += {packed}")
        self.begins_frame = False
        self.pending_fixed.clear()

    def close_block(self) -> None:
        self.flush()
        self.depth -= 1

    def write_struct(self, cls: type[Message], owner: str) -> None:
        for field in self.present(cls):
            code = self.code(field)
            if code is not None:
                self.pending_fixed.append((code, f"{owner}.{field.name}"))
                continue
            value = self.new()
            self.line(f"{value} = {owner}.{field.name}")
            self.write_value(field, value)
        if self.flexible and self.tagged(cls):
            self.write_tags(cls, owner)
        elif self.flexible:
            self.pending_fixed.append(NO_TAGS)

    def write_frame_size(self) -> None:
        """Write the size of a frame, which includes records that stay in their files, into its first bytes."""
        size = self.new()
        self.put(f"{size} = len(out) - {SIZE_BYTES}")
        if self.has_records:
            self.line(f"for _, {size}_ in out.slices: {size} += {size}_.length")
        self.line(f"{self.refer('pack_size', self.packer('i').pack_into)}(out, 0, {size})")

    def write_value(self, field: Field, value: str) -> None:
        if field.is_array:
            self.write_array(field, value)
        elif field.struct is not None:
            self.write_nested_struct(field, value)
        elif (code := self.code(field)) is not None:
            self.pending_fixed.append((code, value))
        else:
            self.write_sized(field.type_name, value, self.nullable(field))

    def write_nested_struct(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if not self.nullable(field):
            self.line(f"assert {value} is not None, {field.name!r}")
            self.write_struct(field.struct, value)
            return
        self.put(f"if {value} is None:")
        self.line(f"    out += {(NULL_STRUCT if field.tag is None else NULL_TAGGED_STRUCT)!r}")
        self.line("else:")
        self.depth += 1
        self.pending_fixed.append(("b", "1"))
        self.write_struct(field.struct, value)
        self.close_block()

    def write_length(self, count: str, code: str) -> None:
        """Write a length, which is a local: compact (plus one, varint) in flexible versions, else of fixed size."""
        if self.flexible:
            self.put(f"out += compact[{count}] if {count} < {COMPACT_MAX} else uvarint({count} + 1)")
        else:
            self.pending_fixed.append((code, count))

    def write_null_case(self, value: str, nullable: bool, code: str) -> bool:
        """Write the null case and open `else:` behind it, if the value is nullable; return whether it is. The caller
        writes the else branch and closes the block."""
        if not nullable:
            return False
        null = b"\x00" if self.flexible else self.packer(code).pack(-1)
        self.put(f"if {value} is None:")
        self.line(f"    out += {null!r}")
        self.line("else:")
        self.depth += 1
        return True

    def write_sized(self, type_name: str, value: str, nullable: bool) -> None:
        code = "h" if type_name == "string" else "i"
        opened = self.write_null_case(value, nullable, code)
        if type_name == "string":
            self.line(f"{value} = {value}.encode()")
        if type_name == "records":
            self.write_records(value)
        else:
            size = self.new()
            self.line(f"{size} = len({value})")
            self.write_length(size, code)
            self.put(f"out += {value}")
        if opened:
            self.close_block()

    def write_records(self, value: str) -> None:
        """Write records, or only their size if they stay in their file."""
        self.has_records = True
        before, size = list(self.pending_fixed), self.new()
        self.line(f"if isinstance({value}, buffers):")
        self.depth += 1
        self.line(f"{size} = len({value})")
        self.write_length(size, "i")
        self.put(f"out += {value}")
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.pending_fixed = before
        self.line(f"{size} = {value}.length")
        self.write_length(size, "i")
        self.put("if not out.slices: out.slices = []")
        self.line(f"out.slices.append((len(out), {value}))")
        self.depth -= 1

    def write_array(self, field: Field, value: str) -> None:
        opened = self.write_null_case(value, self.nullable(field), "i")
        count = self.new()
        self.line(f"{count} = len({value})")
        self.write_length(count, "i")
        if field.struct is None and field.type_name in FIXED:
            self.put(f"out += integers({FIXED[field.type_name]!r}, {count}).pack(*{value})")
        else:
            item = self.new()
            self.put(f"for {item} in {value}:")
            self.depth += 1
            if field.struct is not None:
                self.write_struct(field.struct, item)
            elif field.type_name == "uuid":
                self.line(f"out += {item}")
            else:
                self.write_sized(field.type_name, item, False)
            self.close_block()
        if opened:
            self.close_block()

    def write_tags(self, cls: type[Message], owner: str) -> None:
        """Write the tagged fields that differ from their default: mostly none does."""
        tagged = {self.new(): field for field in self.tagged(cls)}
        for value, field in tagged.items():
            self.line(f"{value} = {owner}.{field.name}")
        self.put(f"if {' or '.join(self.differs(field, value) for value, field in tagged.items())}:")
        self.depth += 1
        written, outer = self.new(), self.new()
        self.line(f"{written} = []; {outer} = out")
        for value, field in tagged.items():
            self.line(f"if {self.differs(field, value)}:")
            self.depth += 1
            self.line("out = bytearray()")
            self.write_value(field, value)
            self.put(f"{written}.append(uvarint({field.tag}) + uvarint(len(out)) + out)")
            self.depth -= 1
        self.line(f"out = {outer}; out += uvarint(len({written}))")
        self.line(f"for {written}_ in {written}: out += {written}_")
        self.depth -= 1
        self.line("else:")
        self.line("    out += b'\\0'")

    def differs(self, field: Field, value: str) -> str:
        if field.is_array and field.default is not None:
            return f"{value} is None or len({value})" if self.nullable(field) else f"len({value})"
        if field.struct is not None and field.default is not None:
            return f"{value} != {self.refer(f'no_{field.name}', field.default)}"
        if field.struct is not None or field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default!r}"
