"""The partition of a key, compared with kafka-python, aiokafka and the hashes in Kafka's own tests."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import kafka.partitioner.default as kafka_python
import numpy as np
import pyarrow as pa
import pytest
from aiokafka import partitioner as aiokafka
from harness.depth import deep
from hypothesis import given, settings

from moldau.spark.records.partitioner import murmur2, partition_of

KAFKAS_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

key_lists = st.lists(st.binary(max_size=40), min_size=1, max_size=8).flatmap(
    lambda keys: st.sampled_from([1, 10]).map(lambda times: keys * times)
)


def test_murmur2_of_the_keys_in_kafkas_own_tests() -> None:
    assert murmur2(pa.array(KAFKAS_OWN)).view(np.int32).tolist() == list(KAFKAS_OWN.values())


@settings(max_examples=deep(70), deadline=None)
@given(key_lists, st.integers(1, 1000))
def test_a_key_gets_the_partition_that_other_clients_choose(keys: list[bytes], partitions: int) -> None:
    chosen = partition_of(pa.array(keys, pa.binary()), partitions).tolist()
    assert chosen == [(kafka_python.murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert chosen == [(aiokafka.murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_null_keys_get_no_partition_and_slices_use_their_own_keys(kind: pa.DataType) -> None:
    keys = pa.array(["x", "21", None, "foobar", "", "y"], kind).slice(1, 4)
    wanted = [(kafka_python.murmur2(key) & 0x7FFFFFFF) % 7 for key in (b"21", b"foobar", b"")]
    chosen = partition_of(keys, 7)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [wanted[0], -1, wanted[1], wanted[2]]


@pytest.mark.parametrize("others", [0, 100])
def test_a_long_key_among_short_ones(others: int) -> None:
    chance = random.Random(3)
    keys = [chance.randbytes(chance.randrange(12)) for _ in range(others)] + [chance.randbytes(70_001)]
    assert murmur2(pa.array(keys)).tolist() == [kafka_python.murmur2(key) & 0xFFFFFFFF for key in keys]


def test_empty_and_null_keys_get_no_partition() -> None:
    assert partition_of(pa.array([], pa.binary()), 3).tolist() == []
    assert partition_of(pa.nulls(3, pa.binary()), 3).tolist() == [-1, -1, -1]
    assert partition_of(pa.nulls(3), 3).tolist() == [-1, -1, -1]
