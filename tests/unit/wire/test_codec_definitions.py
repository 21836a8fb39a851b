"""Our SCHEMA texts against Apache's JSON definitions: order, types, versions, nullability, tags and defaults.

The definitions are those packaged by kafka-python; MOLDAU_KAFKA_DEFINITIONS names a directory with others
(`common/message` of Apache's clients jar has every message). The generator reads neither.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.random_messages import every_message
from oracles import definition

from moldau.base.ids import ZERO_UUID
from moldau.wire.apis import APIS, request_class, response_class
from moldau.wire.schema import NEVER, Field, Message, Span, fields_of

ROOT = Path(__file__).parents[3]
DEFINED = [cls for cls in every_message() if definition(cls) is not None]


def span(text: str | None) -> Span:
    return NEVER if text in (None, "", "none") else Span.parse(str(text))


def our_name(name: str) -> str:
    """Return our name of a field: `topicId` becomes `topic_id`; `id` alone would hide Python's own."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return snake + "_" if snake in ("id", "from", "is", "class", "lambda") else snake


def default_of(field: dict[str, Any]) -> Any:
    """Return a definition's default in our types. A missing struct is None with us, records are null."""
    kind, text = field["type"], str(field.get("default", ""))
    if text == "null" or kind[0].isupper() or kind == "records":
        return None
    if kind.startswith("[]"):
        return ()
    if kind in ("string", "bytes", "uuid"):
        return {"string": text, "bytes": b"", "uuid": ZERO_UUID}[kind]
    if kind == "bool":
        return text.lower() == "true"
    return float(text or 0) if kind == "float64" else int(text or "0", 0)


def type_of(field: Field) -> str:
    """Return the type without struct names: they are not on the wire, and ours differ where request and response share
    one."""
    return ("[]" if field.is_array else "") + ("struct" if field.struct else field.type_name)


def shape(field: dict[str, Any], version: int) -> tuple[object, ...]:
    kind = re.sub(r"[A-Z]\w*$", "struct", field["type"])
    tag = field["tag"] if version in span(field.get("taggedVersions")) else None
    return our_name(field["name"]), kind, version in span(field.get("nullableVersions")), tag


def our_shape(field: Field, version: int) -> tuple[object, ...]:
    return field.name, type_of(field), version in field.nullable, field.tag


def compare(cls: type[Message], fields: list[dict[str, Any]], version: int) -> None:
    """Compare field by field in wire order; tagged fields have no order, so they are compared by tag."""
    theirs = [field for field in fields if version in span(field["versions"])]
    ours = [field for field in fields_of(cls) if version in field.versions and not field.is_own]
    expected = [shape(field, version) for field in theirs]
    actual = [our_shape(field, version) for field in ours]
    assert [s for s in actual if s[3] is None] == [s for s in expected if s[3] is None], f"{cls.__name__} v{version}"
    assert {s[3]: s for s in actual} == {s[3]: s for s in expected}, f"tags of {cls.__name__} v{version}"
    by_name = {our_name(field["name"]): field for field in theirs}
    for field in ours:
        default, right = field.default, default_of(by_name[field.name])
        assert (default, type(default)) == (right, type(right)), f"default of {cls.__name__}.{field.name}"
        if field.struct is not None:
            compare(field.struct, by_name[field.name]["fields"], version)


@pytest.mark.parametrize("cls", DEFINED, ids=lambda cls: cls.__name__)
def test_the_schema_equals_the_definition(cls: type[Message]) -> None:
    defined = definition(cls)
    assert defined is not None
    valid = span(defined["validVersions"])
    low, high = cls.VERSIONS
    for version in range(low, high + 1):
        if version in valid:
            assert (version >= cls.FLEXIBLE) == (version in span(defined["flexibleVersions"]))
            compare(cls, defined["fields"], version)
    assert high >= valid.high
    assert cls in (request_class(defined["apiKey"]), response_class(defined["apiKey"]))


def test_there_are_definitions_to_compare_with() -> None:
    assert len(DEFINED) >= 98


def test_the_index_of_apis_agrees_with_the_classes() -> None:
    for key, api in APIS.items():
        if api.module is None:
            continue
        cls = request_class(key)
        assert (api.lowest, api.highest) == cls.VERSIONS
        assert api.flexible_from == cls.FLEXIBLE


def test_generated_classes_are_up_to_date() -> None:
    generator = ROOT / "tools/generate_messages.py"
    check = subprocess.run([sys.executable, str(generator), "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr
