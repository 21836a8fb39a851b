"""Large batches are opened outside of the log, which then has the same bytes as if it had opened them itself."""

from __future__ import annotations

from typing import Any

import pytest
from harness.making_logs import NOW_MS, batch_of, new_log, read_batches
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import KafkaError
from moldau.log.config import LogConfig
from moldau.log.opening import BYTES_AT_ONCE, COMPRESSED_BYTES_AT_ONCE, RECORDS_AT_ONCE, open_batch, takes_long
from moldau.log.validate import Origin
from moldau.wire.compression import Compression

TWO_HOURS_MS = 7_200_000
COMPACTED = {"cleanup_policy": frozenset({"compact"})}
GZIP = {"compression_type": "gzip"}
STAMPED = {"message_timestamp_type": "LogAppendTime"}


def config_of(settings: dict[str, Any]) -> LogConfig:
    return LogConfig(message_timestamp_before_max_ms=3_600_000, **settings)


@pytest.mark.parametrize(
    ("settings", "count", "size", "late_ms", "compression", "expected"),
    [
        ({}, 5_000, 100, 0, Compression.NONE, False),
        ({}, 5_000, 100, TWO_HOURS_MS, Compression.NONE, True),
        ({}, 5_000, 100, -TWO_HOURS_MS, Compression.NONE, True),
        (STAMPED, 5_000, 100, TWO_HOURS_MS, Compression.NONE, False),
        (COMPACTED, RECORDS_AT_ONCE, 1, 0, Compression.NONE, False),
        (COMPACTED, RECORDS_AT_ONCE + 1, 1, 0, Compression.NONE, True),
        (COMPACTED, 1, BYTES_AT_ONCE, 0, Compression.NONE, True),
        (COMPACTED, 1, 2 * COMPRESSED_BYTES_AT_ONCE, 0, Compression.NONE, False),
        (COMPACTED, 500, 10_000, 0, Compression.GZIP, True),
        (GZIP, 1, BYTES_AT_ONCE, 0, Compression.NONE, True),
        (GZIP, 500, 10_000, 0, Compression.GZIP, False),
    ],
)
def test_which_batches_take_long_to_open(
    settings: dict[str, Any], count: int, size: int, late_ms: int, compression: Compression, expected: bool
) -> None:
    batch = batch_of([b"v" * size] * count, timestamp=NOW_MS + late_ms, compression=compression)
    assert takes_long(batch, config_of(settings), NOW_MS) == expected


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    st.sampled_from([{}, COMPACTED, GZIP, STAMPED, COMPACTED | GZIP, GZIP | STAMPED]),
    st.sampled_from([None, b"key"]),
    st.sampled_from([0, TWO_HOURS_MS, -TWO_HOURS_MS]),
    st.sampled_from([Compression.NONE, Compression.GZIP, Compression.ZSTD]),
    st.sampled_from([(-1, -1, -1), (7, 0, 0), (7, 0, 5)]),
)
def test_an_opened_batch_is_appended_like_any_other(
    values: list[bytes],
    settings: dict[str, Any],
    key: bytes | None,
    late_ms: int,
    compression: Compression,
    producer: tuple[int, int, int],
) -> None:
    config = config_of(settings)
    outcomes: list[Any] = []
    for is_opened in (False, True):
        log = new_log(config)
        outcome: list[Any] = []
        for _ in range(2):  # the second one of a producer is a repetition
            batch = batch_of(
                values, timestamp=NOW_MS + late_ms, key=key, compression=compression, producer_id=producer[0],
                producer_epoch=producer[1], base_sequence=producer[2],
            )  # fmt: skip
            try:
                if is_opened:
                    batch = open_batch(batch, config, NOW_MS)
                origin = Origin.OPENED if is_opened else Origin.CLIENT
                outcome.append(log.append(batch, leader_epoch=3, now_ms=NOW_MS, origin=origin))
            except KafkaError as error:
                outcome.append((error.code, str(error)))
        outcomes.append((outcome, read_batches(log)))
    assert outcomes[0] == outcomes[1]
