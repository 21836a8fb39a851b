"""Two independent codecs, kio and kafka-python, behind one interface: encodes our messages, and decodes bytes to them.

Only representations are converted here (kio has dates, durations and error codes; both have UUID objects and None for
the zero id); neither this file nor the oracles share code with the codec under test.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import uuid
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field, is_optional
from kio.static.constants import EntityType

from moldau.base.ids import ZERO_UUID
from moldau.wire.schema import Message, fields_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own resources in a deprecated way
    from kafka.protocol.data_container import DataContainer  # type: ignore[import-untyped]
    from kafka.protocol.schemas import StructField  # type: ignore[import-untyped]
    from kafka.protocol.schemas import resources as kafka_python_definitions

DEFINITIONS_DIRECTORY = os.environ.get("MOLDAU_KAFKA_DEFINITIONS")
"""A directory with Apache's own *.json (`common/message` in its clients jar): every message instead of the hundred
that kafka-python packages."""

Convert = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Oracle(Protocol):
    def knows(self, cls: type[Message], version: int) -> bool: ...

    def encode(self, message: Message, version: int) -> bytes: ...

    def decode(self, cls: type[Message], data: bytes, version: int) -> Message: ...


def remembered(function: F) -> F:
    """Like `cache`, but without Hashable in its type, which mypy does not find in a class that defines equality."""
    return cast(F, cache(function))


def unchanged(value: Any) -> Any:
    return value


def uuid_of(value: bytes) -> uuid.UUID | None:
    return None if value == ZERO_UUID else uuid.UUID(bytes=value)


def bytes_of(value: uuid.UUID | None) -> bytes:
    return ZERO_UUID if value is None else value.bytes


# --- kio: a dataclass per message and version


@dataclasses.dataclass(frozen=True)
class KioField:
    """One field of a kio class, and how its value becomes ours and back."""

    name: str
    our_name: str
    is_array: bool
    struct: type | None
    is_optional_tag: bool
    to_kio: Convert
    from_kio: Convert


KIO_CONVERSIONS: dict[str, tuple[Convert, Convert]] = {
    "error_code": (ErrorCode, lambda code: code.value),
    "timedelta_i32": (lambda ms: ms * MILLISECOND, lambda period: period // MILLISECOND),
    "timedelta_i64": (lambda ms: ms * MILLISECOND, lambda period: period // MILLISECOND),
    # rounded, because kio divides milliseconds as floats: far dates come back some microseconds too early
    "datetime_i64": (lambda ms: EPOCH + ms * MILLISECOND, lambda date: round((date - EPOCH) / MILLISECOND)),
    "uuid": (uuid_of, bytes_of),
    "records": (unchanged, lambda records: None if records is None else bytes(records)),
}


class Kio:
    def knows(self, cls: type[Message], version: int) -> bool:
        return True

    def encode(self, message: Message, version: int) -> bytes:
        cls = kio_class(message.__class__, version)
        out = io.BytesIO()
        entity_writer(cls)(out, _to_kio(cls, message))
        return out.getvalue()

    def decode(self, cls: type[Message], data: bytes, version: int) -> Message:
        entity, size = entity_reader(kio_class(cls, version))(data, 0)
        assert size == len(data), f"kio read {size} of {len(data)} bytes"
        return _from_kio(cls, entity)


@remembered
def kio_class(cls: type[Message], version: int) -> Any:
    side: Any = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    path = schema_name_map[cls.__module__.rpartition(".")[2]][version][side]
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


@remembered
def kio_fields(cls: type, ours: type[Message]) -> tuple[KioField, ...]:
    our_names = {field.name for field in fields_of(ours)}
    return tuple(_kio_field(field, our_names) for field in dataclasses.fields(cls))


def _kio_field(field: dataclasses.Field[Any], our_names: set[str]) -> KioField:
    kind = classify_field(field)
    wire_type = field.metadata.get("kafka_type", "")
    to_kio, from_kio = KIO_CONVERSIONS.get(wire_type, (unchanged, unchanged))
    if wire_type == "datetime_i64" and is_optional(field):
        to_kio, from_kio = _or_never(to_kio, -1, None), _or_never(from_kio, None, -1)
    (our_name,) = our_names & {field.name, field.name + "_ms", field.name + "_"}
    return KioField(
        name=field.name,
        our_name=our_name,
        is_array=kind.is_array,
        struct=None if wire_type else kind.type_,
        is_optional_tag="tag" in field.metadata and not wire_type and not kind.is_array,
        to_kio=to_kio,
        from_kio=from_kio,
    )


def _or_never(convert: Convert, never: Any, instead: Any) -> Convert:
    return lambda value: instead if value == never else convert(value)


def _to_kio(cls: Any, message: Message) -> Any:
    structs = {field.name: field.struct for field in fields_of(message.__class__)}
    values = {}
    for field in kio_fields(cls, message.__class__):
        value, struct = getattr(message, field.our_name), structs[field.our_name]
        if value is None and field.is_optional_tag and struct is not None:
            value = struct()  # our codec has None where kio has an instance with defaults only
        convert = field.to_kio if struct is None else partial(_to_kio, field.struct)
        if value is not None:
            value = tuple(map(convert, value)) if field.is_array else convert(value)
        values[field.name] = value
    return cls(**values)


def _from_kio(cls: type[Message], entity: Any) -> Message:
    structs = {field.name: field.struct for field in fields_of(cls)}
    values = {}
    for field in kio_fields(entity.__class__, cls):
        value, struct = getattr(entity, field.name), structs[field.our_name]
        convert = field.from_kio if struct is None else partial(_from_kio, struct)
        if field.is_array:
            value = None if value is None else list(map(convert, value))
        elif value is not None or struct is None:
            value = convert(value)
        if field.is_optional_tag and struct is not None and value == struct():
            value = None
        values[field.our_name] = value
    return cls(**values)


# --- kafka-python: a codec that reads Apache's JSON definitions


def definition(cls: type[Message]) -> dict[str, Any] | None:
    """Return Apache's definition of a message, with common structs inserted; None if there is none here."""
    directory = Path(DEFINITIONS_DIRECTORY) if DEFINITIONS_DIRECTORY else resources.files(kafka_python_definitions)
    file = directory / f"{cls.__name__}.json"
    if not file.is_file():
        return None
    parsed: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", file.read_text()))
    common = {struct["name"]: struct["fields"] for struct in parsed.get("commonStructs", [])}
    _resolve(parsed["fields"], common)
    return parsed


def _resolve(fields: list[dict[str, Any]], common: dict[str, Any]) -> None:
    for field in fields:
        element = field["type"].removeprefix("[]")
        if element[0].isupper():
            field["fields"] = field.get("fields") or common[element]
            _resolve(field["fields"], common)


class KafkaPython:
    """kafka-python's plain encoder and decoder, over definitions without its client's own patches (bit fields,
    renamings)."""

    def knows(self, cls: type[Message], version: int) -> bool:
        schema = _kafka_python_class(cls)
        return schema is not None and schema._struct.for_version_q(version)

    def encode(self, message: Message, version: int) -> bytes:
        schema = _kafka_python_class(message.__class__)
        flexible = version >= message.FLEXIBLE
        value = _to_kafka_python(schema, version, message)
        encoded: bytes = schema._struct.encode(value, version=version, compact=flexible, tagged=flexible)
        return encoded

    def decode(self, cls: type[Message], data: bytes, version: int) -> Message:
        schema, flexible = _kafka_python_class(cls), version >= cls.FLEXIBLE
        stream = io.BytesIO(data)
        value = schema._struct.decode(stream, version=version, compact=flexible, tagged=flexible, data_class=schema)
        assert stream.tell() == len(data), f"kafka-python read {stream.tell()} of {len(data)} bytes"
        return _from_kafka_python(cls, version, value)


@remembered
def _kafka_python_class(cls: type[Message]) -> Any:
    parsed = definition(cls)
    return parsed and type(cls.__name__, (DataContainer,), {"_struct": StructField(parsed)})


def _to_kafka_python(schema: Any, version: int, message: Message) -> Any:
    values = {}
    for field in fields_of(message.__class__):
        if version not in field.versions:
            continue
        name, value = field.name.rstrip("_"), getattr(message, field.name)
        convert: Convert = uuid_of if field.type_name == "uuid" else unchanged
        if field.struct is not None:
            convert = partial(_to_kafka_python, schema._struct.fields[name].data_class, version)
        if value is not None:
            value = list(map(convert, value)) if field.is_array else convert(value)
        values[name] = value
    return schema(version=version, **values)


def _from_kafka_python(cls: type[Message], version: int, item: Any) -> Message:
    values = {}
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        value = getattr(item, field.name.rstrip("_"))
        convert: Convert = bytes_of if field.type_name == "uuid" else unchanged
        if field.struct is not None:
            convert = partial(_from_kafka_python, field.struct, version)
        if field.is_array:
            value = None if value is None else list(map(convert, value))
        elif value is not None or field.struct is None:
            value = convert(value)
        values[field.name] = value
    return cls(**values)
