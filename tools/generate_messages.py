"""Generates `src/moldau/wire/messages/` from the message definitions in the package `kio`, and
`src/moldau/wire/log_records/` from `tools/records/`.

kio has a frozen dataclass per message *and version*; this script merges the versions and writes one plain class per
message with its schema. It uses only names, types, versions and defaults. `record_schemas` reads the text files of
`tools/records/`, which define what kio has not: the records of logs.

    python tools/generate_messages.py            write
    python tools/generate_messages.py --check    exit 1 if the checked-in files differ
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType
from record_schemas import RecordClass, RecordField, read_record_schemas

RECORD_SCHEMAS = Path(__file__).parent / "records"
TARGET = Path(__file__).parent.parent / "src/moldau/wire"
FOLDERS = ("messages", "log_records")
LINE_MAX = 120

UNUSED = frozenset(
    [
        "assign_replicas_to_dirs",
        "controller_registration",
        "streams_group_describe",
        "streams_group_heartbeat",
    ]
)
"""APIs whose messages nobody sends or reads: no module is written. Take an API out of here when it is to be served."""

WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
}
ZEROS = {
    "bool": "False",
    "int32": "0",
    "int64": "0",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "uuid": "ZERO_UUID",
    "records": "None",
}
KEYWORDS = {"lambda", "from", "class", "is"}
NULL_BY_DEFAULT = {
    "ListPartitionReassignmentsRequest": {"topics"},
    "ConsumerGroupHeartbeatRequest": {"topic_partitions"},
    "StreamsGroupHeartbeatRequest": {
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "client_tags",
        "task_offsets",
        "task_end_offsets",
    },
    "StreamsGroupHeartbeatResponse": {"active_tasks", "standby_tasks", "warmup_tasks", "partitions_by_user_endpoint"},
    "StreamsGroupDescribeResponse": {"subtopologies"},
}
"""Arrays of structs whose default in Kafka is null; kio drops that default. Null is not empty in these:
null means "unchanged" in a heartbeat and "all" in a list."""

OWN_FIELDS = {
    "BrokerHeartbeatRequest": {"cannot_write": ("bool", 10_000)},
    "BrokerHeartbeatResponse": {"metadata_offset": ("int64", 10_000), "session_timeout_ms": ("int32", 10_001)},
}
"""Tagged fields that only our nodes exchange: their types and tags, from `OWN_TAGS_FROM` on (wire/schema.py)."""


@dataclasses.dataclass
class FieldSpec:
    """One field, merged over all versions of its struct."""

    name: str
    type: str
    is_array: bool
    is_struct: bool
    default: str
    versions: set[int] = dataclasses.field(default_factory=set)
    nullable: set[int] = dataclasses.field(default_factory=set)
    tags: dict[int, set[int]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class StructSpec:
    name: str
    fields: list[FieldSpec] = dataclasses.field(default_factory=list)

    def field(self, spec: FieldSpec, after: FieldSpec | None) -> FieldSpec:
        for existing in self.fields:
            if existing.name == spec.name:
                return existing
        position = 0 if after is None else self.fields.index(after) + 1
        self.fields.insert(position, spec)
        return spec


@dataclasses.dataclass
class MessageSpec:
    name: str
    structs: dict[str, StructSpec] = dataclasses.field(default_factory=dict)
    versions: set[int] = dataclasses.field(default_factory=set)
    flexible: set[int] = dataclasses.field(default_factory=set)


def unwrap(annotation: object) -> tuple[object, bool, bool]:
    """Turn an annotation of kio into (element type, is array, is nullable)."""
    nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        rest = [a for a in typing.get_args(annotation) if a is not types.NoneType]
        nullable = len(rest) < len(typing.get_args(annotation))
        (annotation,) = rest
    if typing.get_origin(annotation) is tuple:
        element, _, _ = unwrap(typing.get_args(annotation)[0])
        return element, True, nullable
    return annotation, False, nullable


def literal(value: object, wire_type: str) -> str:
    """Return a default of kio as source text in our types."""
    if isinstance(value, datetime.timedelta):
        return str(round(value.total_seconds() * 1000))
    if value is None and wire_type == "int64":
        return "-1"
    if value is None and wire_type == "uuid":
        return "ZERO_UUID"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, bytes):
        return repr(bytes(value))
    raise TypeError(f"no literal for {value!r}")


def field_spec(field: dataclasses.Field[typing.Any], annotation: object) -> tuple[FieldSpec, bool]:
    element, is_array, nullable = unwrap(annotation)
    is_struct = dataclasses.is_dataclass(element)
    raw = "" if is_struct else field.metadata["kafka_type"]
    wire_type = element.__name__ if is_struct else WIRE_TYPES.get(raw, raw)  # type: ignore[attr-defined]
    if raw in ("uuid", "datetime_i64") and not is_array:
        nullable = False  # kio's None stands for the zero id and for -1
    name = (
        field.name + "_ms"
        if raw.startswith(("timedelta", "datetime")) and not field.name.endswith("_ms")
        else field.name
    )
    if name in KEYWORDS:
        name += "_"
    if is_array:
        default = "None" if field.default is None else "()"
    elif is_struct:
        default = "None"
    elif field.default is dataclasses.MISSING:
        default = ZEROS.get(wire_type, "0")
    else:
        default = literal(field.default, wire_type)
    return FieldSpec(name, wire_type, is_array, is_struct, default), nullable


def collect(message: MessageSpec, cls: type, version: int) -> None:
    """Merge one version of a struct, and of all structs in it, into the earlier versions."""
    struct = message.structs.setdefault(cls.__name__, StructSpec(cls.__name__))
    hints = typing.get_type_hints(cls, localns=vars(sys.modules[cls.__module__]))
    last: FieldSpec | None = None
    for field in dataclasses.fields(cls):
        spec, nullable = field_spec(field, hints[field.name])
        if spec.name in NULL_BY_DEFAULT.get(message.name, ()):
            spec.default = "None"
        last = merged = struct.field(spec, last)
        if (merged.type, merged.is_array) != (spec.type, spec.is_array):
            raise SystemExit(f"{message.name}.{cls.__name__}.{spec.name}: {merged.type} and {spec.type}")
        merged.versions.add(version)
        merged.default = spec.default
        if nullable:
            merged.nullable.add(version)
        if "tag" in field.metadata:
            merged.tags.setdefault(field.metadata["tag"], set()).add(version)
        if spec.is_struct:
            collect(message, unwrap(hints[field.name])[0], version)  # type: ignore[arg-type]


def span(versions: set[int], last: int) -> str:
    """Return the versions as text: {3, 4, 5} of a message that ends at 5 is "3+"; gaps are not expected."""
    low, high = min(versions), max(versions)
    assert versions == set(range(low, high + 1)), versions
    return f"{low}+" if high == last else f"{low}-{high}"


def schema_lines(struct: StructSpec, last: int) -> Iterator[str]:
    for field in struct.fields:
        words = [field.name, ("[]" if field.is_array else "") + field.type, span(field.versions, last)]
        if field.nullable:
            words.append("null=" + span(field.nullable, last))
        for tag, versions in field.tags.items():
            assert versions == field.versions
            words.append(f"tag={tag}")
        yield " ".join(words)


def python_type(field: FieldSpec) -> str:
    base = field.type if field.is_struct else PYTHON_TYPES.get(field.type, "int")
    if field.is_array:
        base = f"Sequence[{base}]"
    if field.nullable or field.default == "None" or (field.is_struct and not field.is_array):
        base += " | None"
    return base


@dataclasses.dataclass
class ClassText:
    """What the source of a class is made of."""

    name: str
    base: str
    doc: list[str]
    attributes: list[str]
    schema: list[str]
    arguments: list[tuple[str, str, str]]
    """Each field's name, Python type and default."""

    def __str__(self) -> str:
        out = [f"class {self.name}({self.base}):"]
        if self.doc:
            out += [f'    """{self.doc[0]}', *(f"    {line}" for line in self.doc[1:])]
            out[-1] += '"""'
            out.append("")
        slots = ", ".join(f'"{name}"' for name, _, _ in self.arguments)
        out.append(f"    __slots__ = ({slots}{',' if len(self.arguments) == 1 else ''})")
        out += [f"    {line}" for line in self.attributes]
        out += ['    SCHEMA = """', *(f"        {line}" for line in self.schema), '    """']
        if self.arguments:
            out += ["", "    def __init__(", "        self,"]
            out += [f"        {name}: {python} = {default}," for name, python, default in self.arguments]
            out += ["    ) -> None:"]
            out += [f"        self.{name} = {name}" for name, _, _ in self.arguments]
        return "\n".join(out)


def write_class(struct: StructSpec, message: MessageSpec, root: bool) -> str:
    last = max(message.versions)
    attributes = [
        f"VERSIONS = ({min(message.versions)}, {last})",
        f"FLEXIBLE = {min(message.flexible) if message.flexible else last + 1}",
    ]
    arguments = [(field.name, python_type(field), field.default) for field in struct.fields]
    schema = list(schema_lines(struct, last))
    return str(ClassText(struct.name, "Message", [], attributes if root else [], schema, arguments))


def write_record_class(record: RecordClass) -> str:
    attributes = []
    if record.type_number is not None:
        attributes.append(f"TYPE = {record.type_number}")
    if record.versions is not None:
        attributes.append(f"VERSIONS = {record.versions}")
    if record.flexible is not None:
        attributes.append(f"FLEXIBLE = {record.flexible}")
    if record.written is not None:
        attributes.append(f"WRITTEN = {record.written}")
    arguments = []
    for field in record.fields:
        default = record_default(field)
        nullable = set() if field.null is None else {0}
        spec = FieldSpec(field.name, field.element, field.is_array, field.is_struct, default, nullable=nullable)
        arguments.append((field.name, python_type(spec), default))
    schema = [field.schema_line for field in record.fields]
    return str(ClassText(record.name, record.base, record.doc, attributes, schema, arguments))


def record_default(field: RecordField) -> str:
    if field.default is None:
        return "()" if field.is_array else "None" if field.is_struct else ZEROS.get(field.element, "0")
    words = {"null": "None", "true": "True", "empty": f"{field.element}()"}
    return words.get(field.default, field.default)


def collect_in_order(message: MessageSpec, name: str, seen: dict[str, StructSpec]) -> None:
    for field in message.structs[name].fields:
        if field.is_struct:
            collect_in_order(message, field.type, seen)
    seen[name] = message.structs[name]


def rename_shared_structs(message: MessageSpec, shared: set[str]) -> MessageSpec:
    """Prefix nested structs that have the same name in request and response with their side."""
    side = "Request" if message.name.endswith("Request") else "Response"
    for struct in message.structs.values():
        for field in struct.fields:
            if field.is_struct and field.type in shared:
                field.type = side + field.type
    message.structs = {
        (side + n if n in shared else n): dataclasses.replace(s, name=side + n if n in shared else n)
        for n, s in message.structs.items()
    }
    return message


def write_module(key: int, api: str, messages: list[MessageSpec]) -> str:
    shared = set(messages[0].structs) & set(messages[1].structs)
    parts = []
    for message in messages:
        rename_shared_structs(message, shared)
        order: dict[str, StructSpec] = {}
        collect_in_order(message, message.name, order)
        parts += [write_class(s, message, s.name == message.name) for s in order.values()]
    doc = f"{messages[0].name.removesuffix('Request')}, API key {key}."
    return module_text([doc], parts)


def write_record_module(path: Path) -> str:
    """Return the module of a file of `tools/records/`, with a table of its records at the end."""
    schema = read_record_schemas(path)
    parts = [write_record_class(record) for record in schema.classes]
    if schema.table:
        entry, *other_entries = sorted({type_of_entry for type_of_entry, _ in schema.table})
        assert not other_entries, path
        rows = "".join(f"    {row},\n" for _, row in schema.table)
        parts[-1] += f"\n\n\nRECORDS: Final[tuple[{entry}, ...]] = (\n{rows})"
    return module_text(schema.doc, parts)


def module_text(doc: list[str], parts: list[str]) -> str:
    body = "\n\n\n".join(parts)
    bases = ("ControlRecord", "Message", "MetadataRecord", "RecordKey", "RecordValue", "Records")
    names = [name for name in bases if re.search(rf"\b{name}\b", body)]
    notice = "Generated by tools/generate_messages.py."
    one_line = f'"""{doc[0]} {notice}"""'
    fits = len(doc) == 1 and len(one_line) <= LINE_MAX
    head = [one_line, ""] if fits else [f'"""{doc[0]}', *doc[1:], "", notice, '"""', ""]
    head += ["from __future__ import annotations", ""]
    if "Sequence[" in body:
        head += ["from collections.abc import Sequence"]
    if "Final[" in body:
        head += ["from typing import Final"]
    if head[-1]:
        head += [""]
    if "ZERO_UUID" in body:
        head += ["from moldau.base.ids import ZERO_UUID"]
    head += [f"from moldau.wire.schema import {', '.join(names)}", "", "", ""]
    return "\n".join(head) + body + "\n"


def load(api: str, side: EntityType) -> MessageSpec:
    message: MessageSpec | None = None
    for version in sorted(schema_name_map[api]):
        path = schema_name_map[api][version].get(side)
        if path is None:
            continue
        module_name, _, name = path.partition(":")
        cls = getattr(__import__(module_name, fromlist=[name]), name)
        message = message or MessageSpec(name)
        message.versions.add(version)
        if cls.__flexible__:
            message.flexible.add(version)
        collect(message, cls, version)
    assert message is not None
    for field, (wire_type, tag) in OWN_FIELDS.get(message.name, {}).items():
        versions = message.flexible
        own = FieldSpec(field, wire_type, False, False, ZEROS[wire_type], versions, tags={tag: versions})
        message.structs[message.name].fields.append(own)
    return message


def generate() -> dict[str, str]:
    """Return the text of each module by its path below `wire`. The index has all APIs, modules are written for those in
    use."""
    files, rows = {}, []
    for key, api in sorted(api_key_map.items()):
        pair = [load(api, EntityType.request), load(api, EntityType.response)]
        request = pair[0]
        flexible = min(request.flexible) if request.flexible else max(request.versions) + 1
        module = None if api in UNUSED else f'"{api}"'
        rows.append(
            f'    {key}: ({module}, "{request.name.removesuffix("Request")}", '
            f"{min(request.versions)}, {max(request.versions)}, {flexible}),"
        )
        if api not in UNUSED:
            files[f"messages/{api}.py"] = write_module(key, api, pair)
    for path in sorted(RECORD_SCHEMAS.glob("*.txt")):
        files[f"log_records/{path.stem}.py"] = write_record_module(path)
    files["log_records/__init__.py"] = (
        '"""The records of logs and what they contain: one module per file of tools/records/, one class per\n'
        'record, all versions. Generated by tools/generate_messages.py.\n"""\n'
    )
    files["messages/__init__.py"] = (
        '"""One module per API, one class per message, all versions. Generated by tools/generate_messages.py."""\n\n'
        "from __future__ import annotations\n\n"
        "INDEX: dict[int, tuple[str | None, str, int, int, int]] = {\n"
        "    # key: (module, name, lowest version, highest version, flexible from)\n" + "\n".join(rows) + "\n}\n"
    )
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    args = parser.parse_args()
    files = generate()
    present = {str(path.relative_to(TARGET)) for folder in FOLDERS for path in (TARGET / folder).glob("*.py")}
    if args.check:
        stale = [name for name, text in files.items() if name not in present or (TARGET / name).read_text() != text]
        stale += present - files.keys()
        print("\n".join(f"differs: {name}" for name in stale) or "up to date")
        return 1 if stale else 0
    for name in present:
        (TARGET / name).unlink()
    for name, text in files.items():
        (TARGET / name).parent.mkdir(exist_ok=True)
        (TARGET / name).write_text(text)
    print(f"{len(files)} modules written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
