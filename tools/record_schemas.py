"""Reads the definitions of records in `tools/records/`: one file per log, in Apache Kafka's own layout.

A class begins with its kind, its name and its properties; below it are its documentation (`#`) and its fields:

    record TopicRecord type=2 versions=0 flexible=0+
        # A topic was created.
        name string 0+
        topic_id uuid 0+

| kind | what it is | properties |
|---|---|---|
| record | a record of the metadata log | type, versions, flexible |
| control | a control record of the quorum | type, versions, flexible |
| key | the key of a coordinator's record; it has one version, and its type tells it from others | type, value |
| value | the value of a coordinator's record | versions, flexible; `written`, if it is not the last version |
| message | what is neither; bytes in a record | versions |
| struct | a part of one of them | |

`flexible` is missing where no version has compact lengths and tagged fields. A key that is `like` another has its
fields. A field is a line of SCHEMA (wire/schema.py), with `default=` if its default is not zero, empty or missing: a
number, `true`, `null`, or `empty` for a struct whose fields have their defaults.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

BASES = {
    "record": "MetadataRecord",
    "control": "ControlRecord",
    "key": "RecordKey",
    "value": "RecordValue",
    "message": "Message",
    "struct": "Message",
}
NEVER_FLEXIBLE = 2**15


@dataclasses.dataclass
class RecordField:
    name: str
    type: str
    """As in the schema: with `[]` in front for an array."""
    versions: str
    null: str | None = None
    tag: str | None = None
    default: str | None = None

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()

    @property
    def schema_line(self) -> str:
        words = [self.name, self.type, self.versions]
        words += [f"{word}={value}" for word, value in (("null", self.null), ("tag", self.tag)) if value is not None]
        return " ".join(words)


@dataclasses.dataclass
class RecordClass:
    name: str
    base: str
    type_number: int | None = None
    versions: tuple[int, int] | None = None
    """None: those of the base class, or of the message that contains the struct."""
    flexible: int | None = None
    written: int | None = None
    doc: list[str] = dataclasses.field(default_factory=list)
    fields: list[RecordField] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class RecordSchema:
    doc: list[str] = dataclasses.field(default_factory=list)
    classes: list[RecordClass] = dataclasses.field(default_factory=list)
    table: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """An entry of the table for each type of record: its Python type and its text."""


def read_record_schemas(path: Path) -> RecordSchema:
    schema = RecordSchema()
    for line in path.read_text().splitlines():
        text = line.strip()
        if text.startswith("#"):
            owner = schema.classes[-1] if schema.classes else schema
            owner.doc.append(text.removeprefix("#").strip())
        elif line.startswith(" "):
            name, type_name, versions, *options = text.split()
            field = RecordField(name, type_name, versions, **dict(word.split("=", 1) for word in options))
            schema.classes[-1].fields.append(field)
        elif text:
            kind, name, *options = text.split()
            _add_class(schema, kind, name, dict(word.split("=", 1) for word in options))
    return schema


def _add_class(schema: RecordSchema, kind: str, name: str, options: dict[str, str]) -> None:
    record = RecordClass(name, BASES[kind])
    schema.classes.append(record)
    if "type" in options:
        record.type_number = int(options.pop("type"))
        value = options.pop("value", None)
        types = f"type[{record.base}]" if value is None else "tuple[type[RecordKey], type[RecordValue]]"
        schema.table.append((types, name if value is None else f"({name}, {value})"))
    if "versions" in options:
        low, _, high = options.pop("versions").partition("-")
        record.versions = int(low), int(high or low)
        record.flexible = int(options.pop("flexible", f"{NEVER_FLEXIBLE}+").removesuffix("+"))
    if kind == "value":
        assert record.versions is not None, name
        record.written = int(options.pop("written", record.versions[1]))
    if "like" in options:
        record.base = options.pop("like")
        record.fields += next(each for each in schema.classes if each.name == record.base).fields
    assert not options, f"{name}: {options}"
