"""Avro schemas convert to Spark types, and fastavro reads and writes their values. This needs no Spark session."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from moldau.pipelines.planning.avro_records import read_all, read_one, write_one
from moldau.pipelines.planning.avro_types import UnsuitableAvro, drop_unsupported_logical_types, spark_schema
from moldau.pipelines.planning.record_schemas import read_avro_schema


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in fields]}


EVERYTHING = record(
    ("flag", "boolean"),
    ("small", "int"),
    ("big", "long"),
    ("half", "float"),
    ("whole", ["null", "double"]),
    ("raw", "bytes"),
    ("text", "string"),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("exact", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
    ("other_colour", ["null", "Colour"]),
    ("digest", {"type": "fixed", "name": "Digest", "size": 2}),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("sizes", {"type": "map", "values": "long"}),
    ("who", ["null", {"type": "record", "name": "Who", "fields": [{"name": "age", "type": "int"}]}]),
    ("number", ["int", "long"]),
)
ROW = {
    "flag": True, "small": 1, "big": 2**40, "half": 0.5, "whole": None, "raw": b"\x00", "text": "žluť",
    "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 8, tzinfo=UTC),
    "exact": datetime(2026, 1, 31, 8, 0, 0, 7, UTC),
    "local": datetime(2026, 1, 31, 8), "clock": 1000, "price": Decimal("12.50"),
    "uuid": "00000000-0000-0000-0000-000000000001", "colour": "RED", "other_colour": None, "digest": b"ab",
    "tags": ["a", None], "sizes": {"a": 1}, "who": {"age": 7}, "number": 5,
}  # fmt: skip


def test_avro_types_become_spark_types() -> None:
    assert spark_schema(EVERYTHING).simpleString() == (
        "struct<flag:boolean,small:int,big:bigint,half:float,whole:double,raw:binary,text:string,day:date,at:timestamp,"
        "exact:timestamp,local:timestamp_ntz,clock:int,price:decimal(6,2),uuid:string,colour:string,other_colour:string,"
        "digest:binary,tags:array<string>,sizes:map<string,bigint>,who:struct<age:int>,number:bigint>"
    )
    schema = spark_schema(EVERYTHING)
    assert [field.name for field in schema.fields if field.nullable] == ["whole", "other_colour", "who"]


def test_a_written_row_is_read_back_unchanged() -> None:
    avro = fastavro.parse_schema(drop_unsupported_logical_types(EVERYTHING))
    value = write_one(ROW, avro)
    arrow = to_arrow_type(spark_schema(EVERYTHING), timezone="UTC")
    (read,) = read_all([value], avro, arrow, is_framed=False).to_pylist()
    assert read["error"] is None
    assert {name: dict(each) if name == "sizes" else each for name, each in read["row"].items()} == ROW


@pytest.mark.parametrize(
    ("avro", "message"),
    [
        ("string", "the schema is not a record but string"),
        (record(("x", ["string", "int"])), "x: a union of string, int has no Spark type"),
        (record(("next", ["null", "R"])), "next: R contains itself, and Spark has no recursive types"),
        (record(("x", "Missing")), "x: there is no type Missing"),
        (
            record(("x", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
            "x: decimals have 1 to 38 digits in Spark, not 39",
        ),
        (
            record(("x", {"type": "bytes", "logicalType": "decimal"})),
            "x: a decimal needs a precision, and a scale that is not larger",
        ),
        (record(("a", record(("b", {"type": "array", "items": ["int", "string"]})))), "a.b[]: a union of int, string"),
    ],
)
def test_a_field_without_a_spark_type_is_refused_by_name(avro: Any, message: str) -> None:
    with pytest.raises(UnsuitableAvro) as refused:
        spark_schema(avro)
    assert str(refused.value).startswith(message)


PAIR = fastavro.parse_schema(record(("id", "string"), ("price", EVERYTHING["fields"][12]["type"])))


def _pair(id_: str, price: str) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, PAIR, {"id": id_, "price": Decimal(price)})
    return written.getvalue()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "the value is empty"),
        (b"\x06ab", "not Avro: "),
        (b"\x04\xff\xff\x02\x00", "not Avro: UnicodeDecodeError"),
        (_pair("a", "1.00") + b"zz", "not Avro of this schema: 2 bytes are left over"),
        (b"\xff" * 20, "not Avro: "),
    ],
)
def test_invalid_avro_is_an_error(value: bytes, message: str) -> None:
    read = read_one(value, PAIR, is_framed=False)
    assert read.row is None
    assert read.error is not None
    assert read.error.startswith(message)


def test_a_schema_registry_header_is_required_when_framed() -> None:
    framed = b"\x00\x00\x00\x00\x07" + _pair("a", "1.00")
    assert read_one(framed, PAIR, is_framed=True).row == {"id": "a", "price": Decimal("1.00")}
    for value in (_pair("a", "1.00"), b"\x00\x00", b"\x01" + framed[1:]):
        error = read_one(value, PAIR, is_framed=True).error
        assert error is not None
        assert error.startswith("no schema registry header")


def test_a_value_out_of_range_does_not_affect_others() -> None:
    """Avro encodes a decimal of any size; only the column has a precision."""
    wide = fastavro.parse_schema(
        record(("id", "string"), ("price", EVERYTHING["fields"][12]["type"] | {"precision": 30}))
    )
    written = io.BytesIO()
    fastavro.schemaless_writer(written, wide, {"id": "b", "price": Decimal("123456789.00")})
    arrow = to_arrow_type(spark_schema(record(("id", "string"), ("price", EVERYTHING["fields"][12]["type"]))))
    read = read_all([_pair("a", "1.00"), written.getvalue(), None], PAIR, arrow, is_framed=False)
    assert isinstance(read, pa.StructArray)
    rows = read.to_pylist()
    assert rows[0] == {"row": {"id": "a", "price": Decimal("1.00")}, "error": None}
    assert rows[1]["row"] is None
    assert rows[1]["error"].startswith("out of range: ")
    assert rows[2] == {"row": None, "error": None}


def test_a_row_that_does_not_fit_the_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="a row does not fit the Avro schema"):
        write_one({"id": None, "price": Decimal(1)}, PAIR)


def point(name: str, field: str, kind: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}


def test_types_of_the_same_name_in_different_namespaces_are_different() -> None:
    fields = [
        {"name": "a", "type": point("x.Point", "i", "int")},
        {"name": "b", "type": point("Point", "s", "string")},
        {"name": "c", "type": "x.Point"},
        {"name": "d", "type": "Point"},
    ]
    avro = {"type": "record", "name": "Point", "namespace": "z", "fields": [{"name": "in", "type": "long"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "y", "fields": [*fields, {"name": "e", "type": avro}]}
    fastavro.parse_schema(outer)
    columns = {field.name: field.dataType.simpleString() for field in spark_schema(outer).fields}
    assert columns == {
        "a": "struct<i:int>", "b": "struct<s:string>", "c": "struct<i:int>", "d": "struct<s:string>",
        "e": "struct<in:bigint>",
    }  # fmt: skip


def test_a_type_may_contain_one_of_the_same_name_in_another_namespace() -> None:
    avro = record(("a", point("x.Point", "i", "int")), ("b", point("y.Point", "p", "x.Point")))
    assert spark_schema(avro).simpleString() == "struct<a:struct<i:int>,b:struct<p:struct<i:int>>>"
    with pytest.raises(UnsuitableAvro, match=r"b\.p: Point contains itself"):
        spark_schema(record(("a", point("x.Point", "i", "int")), ("b", point("y.Point", "p", "Point"))))


@pytest.mark.parametrize("kind", [["null", "long"], {"type": "long"}])
def test_a_logical_type_of_a_field_without_a_primitive_type_is_ignored(tmp_path: Path, kind: Any) -> None:
    """Avro ignores it there: a logical type belongs inside the type, not beside it in the field."""
    field = {"name": "at", "type": kind, "logicalType": "timestamp-millis"}
    (tmp_path / "at.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": [field]}))
    assert spark_schema(read_avro_schema(tmp_path / "at.avsc")).simpleString() == "struct<at:bigint>"


def test_a_fixed_decimal_keeps_its_type_where_it_is_referenced_by_name() -> None:
    money = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}
    avro = record(("net", money), ("tax", "Money"))
    schema = spark_schema(avro)
    assert schema.simpleString() == "struct<net:decimal(6,2),tax:decimal(6,2)>"
    row = {"net": Decimal("12.50"), "tax": Decimal("2.38")}
    value = write_one(row, fastavro.parse_schema(avro))
    (read,) = read_all([value], fastavro.parse_schema(avro), to_arrow_type(schema, timezone="UTC"), False).to_pylist()
    assert read == {"row": row, "error": None}


def test_a_type_without_a_namespace_is_found_in_a_record_that_has_one() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    inner = {"type": "record", "name": "N", "namespace": "x", "fields": [{"name": "again", "type": "Colour"}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "colour", "type": colour}, {"name": "n", "type": inner}],
    }
    assert spark_schema(schema).simpleString() == "struct<colour:string,n:struct<again:string>>"
