"""Makes random messages of any class and version from its SCHEMA and a seed.

There are three fillings: LEAST (null, empty, lowest), MOST (nothing null, every tagged field set, one string and one
array long enough for a varint of three bytes) and MIXED (anything). Fields that are not Apache Kafka's have their
defaults. This module knows no oracle and encodes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.wire.apis import APIS, request_class, response_class
from moldau.wire.log_records import consumer_protocol, kafka_metadata, metadata, offsets, quorum, transactions
from moldau.wire.schema import Field, Message, fields_of

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
LATEST_DATE_MS = 253_402_300_799_999
"""kio reads int64 times as dates: from 1970, or -1 for none, to the end of the year 9999."""
ALPHABET = "az09._- \x00\x7fäß€漢🌊\u0301"
ERROR_CODES = tuple(int(code) for code in ErrorCode)
TWO_BYTES, THREE_BYTES = 130, 16_400
"""Lengths whose varints take two and three bytes."""
ELEMENTS_MAX = 300
"""Array elements in one message, including nested ones, so that nesting does not multiply them."""


class Filling(Enum):
    LEAST = "least"
    MOST = "most"
    MIXED = "mixed"


def every_message() -> Iterator[type[Message]]:
    for key, api in APIS.items():
        if api.module is not None:
            yield request_class(key)
            yield response_class(key)


def every_record() -> Iterator[type[Message]]:
    """Yield the classes of all records of logs, keys and values, and of what consumers send each other."""
    yield from (*metadata.RECORDS, *kafka_metadata.RECORDS, *quorum.RECORDS)
    for pair in (*offsets.RECORDS, *transactions.RECORDS):
        yield from pair
    yield from (consumer_protocol.Subscription, consumer_protocol.Assignment)


def every_version() -> Iterator[tuple[type[Message], int]]:
    for cls in every_message():
        low, high = cls.VERSIONS
        for version in range(low, high + 1):
            yield cls, version


def random_message(cls: type[Message], version: int, filling: Filling, seed: object) -> Message:
    """Return a random message; the same arguments make the same message."""
    rng = random.Random(f"{cls.__name__} {version} {filling.value} {seed}")
    return _Maker(version, filling, rng).message(cls, 0)


def least_element(field: Field, version: int) -> Any:
    """Return the smallest element that an array of that field can hold."""
    return _Maker(version, Filling.LEAST, random.Random(0)).single(field, 1)


class _Maker:
    def __init__(self, version: int, filling: Filling, rng: random.Random) -> None:
        self.version = version
        self.filling = filling
        self.rng = rng
        self.elements_left = ELEMENTS_MAX
        self.long_string_left = self.long_array_left = filling is Filling.MOST

    def message(self, cls: type[Message], depth: int) -> Message:
        present = [field for field in fields_of(cls) if self.version in field.versions and not field.is_own]
        return cls(**{field.name: self.field(field, depth) for field in present})

    def field(self, field: Field, depth: int) -> Any:
        if field.tag is not None and self.leaves_out(otherwise=0.5):
            return field.default
        if self.version in field.nullable and self.leaves_out(otherwise=0.25):
            return None
        if field.is_array:
            return self.array(field, depth)
        value = self.single(field, depth)
        while field.tag is not None and _is_default(field, value):
            value = self.single(field, depth)
        return value

    def leaves_out(self, otherwise: float) -> bool:
        """Whether a field is left out: always with LEAST, never with MOST, otherwise with this probability."""
        return self.filling is Filling.LEAST or (self.filling is Filling.MIXED and self.rng.random() < otherwise)

    def array(self, field: Field, depth: int) -> list[Any]:
        if self.long_array_left and field.type_name in INTEGERS:
            self.long_array_left = False
            return [self.primitive(field) for _ in range(100)] * (THREE_BYTES // 100)
        count = min(self.count(depth), self.elements_left)
        self.elements_left -= count
        return [self.single(field, depth + 1) for _ in range(count)]

    def count(self, depth: int) -> int:
        if self.filling is Filling.LEAST:
            return 0
        if self.filling is Filling.MOST:
            return TWO_BYTES if depth == 0 and self.rng.random() < 0.1 else 2
        return self.rng.choice((0, 0, 1, 1, 2, 3) if depth else (0, 1, 1, 2, 3, 5))

    def single(self, field: Field, depth: int) -> Any:
        return self.primitive(field) if field.struct is None else self.message(field.struct, depth)

    def primitive(self, field: Field) -> Any:
        if field.name.endswith("error_code"):
            return self.rng.choice(ERROR_CODES)
        if field.type_name in INTEGERS:
            return self.integer(field)
        match field.type_name:
            case "bool":
                return self.rng.random() < 0.5
            case "float64":
                return self.rng.choice((0.0, -1.5, 1e308, float("-inf"), self.rng.random()))
            case "uuid":
                return self.rng.choice((bytes(16), self.rng.randbytes(16), self.rng.randbytes(16)))
            case "string":
                return "".join(self.rng.choices(ALPHABET, k=self.length()))
            case "bytes" | "records":
                return self.rng.randbytes(self.length())
        raise AssertionError(f"no value for {field.type_name}")

    def integer(self, field: Field) -> int:
        low, high = INTEGERS[field.type_name]
        if field.name.endswith("_ms") and field.type_name == "int64":
            low, high = (-1 if field.default == -1 else 0), LATEST_DATE_MS
        if self.filling is Filling.LEAST:
            return low
        small = self.rng.randint(max(low, -1), min(high, 300))
        return self.rng.choice((low, high, 0, small, self.rng.randint(low, high)))

    def length(self) -> int:
        if self.long_string_left:
            self.long_string_left = False
            return THREE_BYTES // 2  # characters: of one to four bytes each
        if self.filling is Filling.LEAST:
            return 0
        return self.rng.choice((0, 1, 7, 20, TWO_BYTES if self.rng.random() < 0.2 else 3))


def _is_default(field: Field, value: Any) -> bool:
    """Whether the value is the default, which Kafka leaves out of tagged fields; ours leaves out a struct only if it is
    None."""
    return bool(value == (field.struct() if field.struct else field.default))
