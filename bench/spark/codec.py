"""How many rows a second one core turns from record batches into Arrow and back, and hashes to partitions.

Run as `python -m bench.spark.codec`. Unlike the other programs here it measures the product's own code in this process,
so it imports it. Nothing is sent and no broker runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.measuring.options import is_wanted, plain_parser
from bench.measuring.report import Table, show
from moldau.spark.records.decode import FetchedRecords, decode
from moldau.spark.records.encode import EncodeColumns, encode_batches
from moldau.spark.records.partitioner import partition_of
from moldau.wire.batch import stamp
from moldau.wire.compression import Compression

SEED = 7
OFFSET_MAX = 1 << 62
NOW_MS = 1_760_000_000_000
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
ALL_COLUMNS = COLUMNS.append(pa.field("headers", HEADERS))
VALUE_ONLY = pa.schema([("value", pa.binary())])
TEXT = b"the river begins in the forest and ends where another one takes its name"


@dataclass(frozen=True)
class Shape:
    """A kind of records: values of about `value_bytes`, with a key each, so many bytes of them in one batch."""

    name: str
    value_bytes: int
    is_varied: bool = False
    batch_bytes: int = 1 << 20
    headers: int = 0
    compression: Compression = Compression.NONE

    def columns(self, rows: int) -> EncodeColumns:
        chance = random.Random(SEED)
        spread = self.value_bytes // 2 if self.is_varied else 0
        sizes = [self.value_bytes + chance.randint(-spread, spread) for _ in range(rows)]
        words = TEXT.split()
        text = b" ".join(chance.choice(words) for _ in range(1 << 18))
        values = [text[at : at + size] for size in sizes for at in (chance.randrange(len(text) - size),)]
        keys = [b"user-%06d" % chance.randrange(1_000_000) for _ in range(rows)]
        timestamps = NOW_MS + np.sort(np.array([chance.randrange(5_000) for _ in range(rows)], np.int64))
        some = [{"key": f"header-{number}", "value": b"some value"} for number in range(self.headers)]
        headers = pa.array([some] * rows, HEADERS) if some else None
        return EncodeColumns(pa.array(keys), pa.array(values), timestamps, headers)


SHAPES = (
    Shape("100 B", 100),
    Shape("100 B varied", 100, True),
    Shape("100 B varied, 16-KiB batches", 100, True, 16 << 10),
    Shape("100 B varied, one to a batch", 100, True, 1),
    Shape("100 B varied, 3 headers", 100, True, headers=3),
    Shape("1 KiB", 1024),
    Shape("1 KiB varied", 1024, True),
    *(
        Shape(f"100 B varied, {codec.name.lower()}", 100, True, compression=codec)
        for codec in Compression
        if codec != Compression.NONE
    ),
)


def at_offsets(batches: Sequence[bytearray], limits: Sequence[tuple[int, int]]) -> memoryview:
    """The batches as a log would hold them."""
    for batch, (base_offset, _) in zip(batches, limits, strict=True):
        stamp(memoryview(batch), base_offset, leader_epoch=0)
    return memoryview(b"".join(batches))


def rows_per_second(rows: int, rounds: int, work: Callable[[], object]) -> float:
    """The best of several rounds, in CPU time: what others do on the machine counts as little as can be."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return rows / best


def measure(shape: Shape, rows: int, rounds: int) -> list[float]:
    columns = shape.columns(rows)
    step = max(1, shape.batch_bytes // shape.value_bytes)
    limits = [(first, min(first + step, rows)) for first in range(0, rows, step)]

    def encode_all() -> list[bytearray]:
        return encode_batches(columns, limits, [None] * len(limits), shape.compression)

    fetched = at_offsets(encode_all(), limits)

    def decode_all(schema: pa.Schema) -> Callable[[], object]:
        return lambda: sum(
            batch.num_rows for batch in decode(FetchedRecords("bench", 0, fetched, 0, OFFSET_MAX), schema)
        )

    assert decode_all(ALL_COLUMNS)() == rows
    tasks = [decode_all(COLUMNS), decode_all(ALL_COLUMNS), decode_all(VALUE_ONLY), encode_all]
    return [rows_per_second(rows, rounds, task) for task in tasks]


def measure_partitioner(keys_count: int, rounds: int) -> float:
    keys = pa.array([b"user-%d" % number for number in range(keys_count)])
    return rows_per_second(keys_count, rounds, lambda: partition_of(keys, 12))


def main() -> None:
    options = plain_parser(__doc__)
    options.add_argument("--only", action="append", metavar="TEXT", help="only shapes with this in their name")
    options.add_argument("--rounds", type=int, default=7, help="rounds, of which the best counts (default 7)")
    options.add_argument("--bytes", type=int, default=8 << 20, help="bytes of values for each shape (default 8 MiB)")
    chosen = options.parse_args()
    lines = []
    for shape in SHAPES:
        if is_wanted(shape.name, chosen.only):
            rates = measure(shape, chosen.bytes // shape.value_bytes, chosen.rounds)
            lines.append([shape.name, *(f"{rate / 1e6:.2f}" for rate in rates)])
    headers = ["million rows/s", "decode", "with headers", "value only", "encode"]
    show(Table("Record batches and Arrow, one core", headers, lines))
    if is_wanted("partitioner", chosen.only):
        print(f"partitioner: {measure_partitioner(1_000_000, chosen.rounds) / 1e6:.1f} million keys/s")


if __name__ == "__main__":
    main()
