"""Converts Avro schemas to Spark types.

Avro's records, enums, fixed, maps, arrays and logical types have a Spark type each; a union is read as a value that may
be null, its usual purpose. A field without a Spark type raises UnsuitableAvro, which names the field. avro_records.py
reads the records.

    boolean int long float double bytes string     the type of the same name
    date, timestamp-millis/micros                  date, timestamp
    local-timestamp-millis/micros                  timestamp_ntz
    decimal                                        decimal(precision, scale)
    time-millis, time-micros, duration, uuid …     their underlying type (int, bigint, binary, string)
    enum, fixed                                    string, binary
    [null, X], [int, long], [float, double]        X, may be null; bigint; double
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Avro = Any
"""A schema as parsed JSON: a name, a list (union) or an object."""

PRIMITIVES: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
LOGICAL: Final[Mapping[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
WIDENED: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
DECIMAL_PRECISION_MAX: Final = 38


class UnsuitableAvro(ValueError):
    """An Avro schema without an equivalent Spark schema. The message is one line and names the field."""


def spark_schema(avro: Avro) -> StructType:
    """Return the columns of a record schema. A field is NOT NULL unless it is a union with null."""
    spark_type, _ = _Reader().type_of(avro, "the schema")
    if not isinstance(spark_type, StructType):
        raise UnsuitableAvro(f"the schema is not a record but {_name(avro)}")
    return spark_type


def drop_unsupported_logical_types(avro: Avro) -> Avro:
    """Return the schema without logical types that Spark does not have: their values keep the underlying type."""
    if isinstance(avro, list):
        return [drop_unsupported_logical_types(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    copy = {key: drop_unsupported_logical_types(value) if key in ("type", "items", "values") else value
              for key, value in avro.items()}  # fmt: skip
    if isinstance(avro.get("fields"), list):
        copy["fields"] = [drop_unsupported_logical_types(field) for field in avro["fields"]]
    logical = avro.get("logicalType")
    kind = avro.get("type")
    is_supported = logical == "decimal" or (isinstance(kind, str) and (kind, logical) in LOGICAL)
    if logical and not is_supported:
        copy = {key: value for key, value in copy.items() if key != "logicalType"}
    return copy


class _Reader:
    """Converts types and remembers the named ones, because Avro refers by name to a type that was defined before."""

    def __init__(self) -> None:
        self._named: dict[str, DataType] = {}
        """By full name: with the namespace."""
        self._open: set[str] = set()
        """The records that are being converted, by full name: one that refers to them contains itself."""
        self._namespace = ""
        """That of the innermost open record: names without a namespace are in it."""

    def type_of(self, avro: Avro, where: str) -> tuple[DataType, bool]:
        """Return the Spark type, and whether the value may be null. `where` is the field in error messages."""
        if isinstance(avro, list):
            return self._union(avro, where)
        if isinstance(avro, str):
            return self._by_name(avro, where), False
        if not isinstance(avro, dict) or "type" not in avro:
            raise UnsuitableAvro(f"{where}: {avro!r} is not an Avro type")
        return self._definition(avro, where)

    def _by_name(self, name: str, where: str) -> DataType:
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        full_name = self._full_name({"name": name})
        if full_name not in self._named and full_name not in self._open:
            full_name = name  # as Avro's own parser does: a type without a namespace
        if full_name in self._open:
            raise UnsuitableAvro(f"{where}: {name} contains itself, and Spark has no recursive types")
        if full_name not in self._named:
            raise UnsuitableAvro(f"{where}: there is no type {name}")
        return self._named[full_name]

    def _full_name(self, avro: Mapping[str, Any]) -> str:
        """Return the full name of a definition, or of {"name": name} for a reference."""
        name, namespace = str(avro.get("name", "")), avro.get("namespace", self._namespace)
        return name if "." in name or not namespace else f"{namespace}.{name}"

    def _union(self, members: list[Avro], where: str) -> tuple[DataType, bool]:
        others = [each for each in members if each != "null"]
        nullable = len(others) < len(members)
        if len(others) == 1:
            return self.type_of(others[0], where)[0], nullable
        names = [each for each in others if isinstance(each, str)]
        if len(names) == len(others) and frozenset(names) in WIDENED:
            return PRIMITIVES[WIDENED[frozenset(names)]], nullable
        raise UnsuitableAvro(f"{where}: a union of {', '.join(map(_name, members))} has no Spark type")

    def _definition(self, avro: dict[str, Any], where: str) -> tuple[DataType, bool]:
        kind = avro["type"]
        if kind in ("record", "error"):
            return self._record(avro, where), False
        if kind in ("enum", "fixed"):
            return self._enum_or_fixed(avro, where), False
        if kind == "array":
            element, nullable = self.type_of(avro.get("items"), f"{where}[]")
            return ArrayType(element, nullable), False
        if kind == "map":
            value, nullable = self.type_of(avro.get("values"), f"{where}{{}}")
            return MapType(StringType(), value, nullable), False
        if kind == "bytes" and avro.get("logicalType") == "decimal":
            return _decimal(avro, where), False
        if isinstance(kind, str) and (kind, avro.get("logicalType")) in LOGICAL:
            return LOGICAL[kind, avro["logicalType"]], False
        return self.type_of(kind, where)

    def _enum_or_fixed(self, avro: dict[str, Any], where: str) -> DataType:
        spark_type: DataType = StringType() if avro["type"] == "enum" else BinaryType()
        if avro["type"] == "fixed" and avro.get("logicalType") == "decimal":
            spark_type = _decimal(avro, where)
        self._named[self._full_name(avro)] = spark_type
        return spark_type

    def _record(self, avro: dict[str, Any], where: str) -> StructType:
        name, namespace_outside = self._full_name(avro), self._namespace
        self._open.add(name)
        self._namespace = name.rpartition(".")[0]
        fields = []
        for field in avro.get("fields", ()):
            path = field["name"] if where == "the schema" else f"{where}.{field['name']}"
            spark_type, nullable = self.type_of(field["type"], path)
            fields.append(StructField(field["name"], spark_type, nullable))
        self._open.discard(name)
        self._namespace = namespace_outside
        self._named[name] = StructType(fields)
        return StructType(fields)


def _name(avro: Avro) -> str:
    return str(avro.get("type")) if isinstance(avro, dict) else "a union" if isinstance(avro, list) else str(avro)


def _decimal(avro: Mapping[str, Any], where: str) -> DecimalType:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        raise UnsuitableAvro(f"{where}: a decimal needs a precision, and a scale that is not larger")
    if not 0 < precision <= DECIMAL_PRECISION_MAX:
        raise UnsuitableAvro(f"{where}: decimals have 1 to {DECIMAL_PRECISION_MAX} digits in Spark, not {precision}")
    return DecimalType(precision, scale)
