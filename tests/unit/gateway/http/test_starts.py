"""Where a reader begins, against a cluster in memory."""

from __future__ import annotations

import asyncio

import pytest
from harness.gateway_accounts import MemoryCluster

from moldau.base.errors import KafkaError
from moldau.gateway.http.starts import EARLIEST, LATEST, Start, positions_at, start_of
from moldau.gateway.ports import NewRecord
from moldau.web.failures import ApiError


def cluster() -> MemoryCluster:
    """Two partitions: offsets 2 to 4 of the first are there, 0 to 2 of the second; one record each 100 ms."""
    made = MemoryCluster(telemetry=2)
    for number in range(5):
        made.topics["telemetry"].append(NewRecord(b"a", timestamp_ms=1_000 + 100 * number, partition=0), 0)
    for number in range(3):
        made.topics["telemetry"].append(NewRecord(b"b", timestamp_ms=1_050 + 100 * number, partition=1), 0)
    made.delete_before("telemetry", 0, 2)
    return made


def begin(start: Start, made: MemoryCluster | None = None, user: str = "anna") -> dict[int, int]:
    async def positions() -> dict[int, int]:
        return await positions_at((made or cluster()).account(user, ""), "telemetry", start)

    return asyncio.run(positions())


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start(EARLIEST), {0: 2, 1: 0}),
        (Start(LATEST), {0: 5, 1: 3}),
        (Start(EARLIEST, partition=1), {1: 0}),
        (Start("1250"), {0: 3, 1: 2}),
        (Start("1970-01-01T00:00:01.250Z"), {0: 3, 1: 2}),
        (Start("9999"), {0: 5, 1: 3}),
        (Start("0:4"), {0: 4, 1: 3}),
        (Start("0:1,1:9"), {0: 2, 1: 3}),
        (Start(LATEST, resumed={0: 3, 1: 1}), {0: 3, 1: 1}),
        (Start(EARLIEST, partition=0, resumed={0: 1}), {0: 2}),
        (Start(LATEST, resumed={0: 4}), {0: 4, 1: 0}),
    ],
)
def test_a_reader_begins_where_its_request_says(start: Start, expected: dict[int, int]) -> None:
    assert begin(start) == expected


def test_a_group_goes_on_where_it_is() -> None:
    made = cluster()
    made.committed["pumps", "telemetry"] = {0: 3}
    assert begin(Start(LATEST, "pumps"), made) == {0: 3, 1: 3}
    assert begin(Start(EARLIEST, "pumps"), made) == {0: 3, 1: 0}
    assert begin(Start(LATEST, "pumps", resumed={0: 4, 1: 2}), made) == {0: 4, 1: 2}


@pytest.mark.parametrize("start", [Start(EARLIEST, partition=2), Start("5:1")])
def test_a_partition_that_is_not_there_is_not_found(start: Start) -> None:
    with pytest.raises(ApiError, match="has the partitions 0 to 1"):
        begin(start)


def test_who_may_not_read_begins_nowhere() -> None:
    made = cluster()
    made.allow("pump", write=["telemetry"])
    with pytest.raises(KafkaError):
        begin(Start(EARLIEST), made, "pump")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (b"form=latest", "unknown parameter 'form'"),
        (b"from=earliest&from=latest", "given twice"),
        (b"partition=-1", "is not a number"),
        (b"group=", "group is a name"),
        (b"group=" + b"g" * 1_001, "group is a name"),
        (b"from=\xff", "cannot be read"),
        (b"from=" + b"1" * 9_000, "8000 characters"),
    ],
)
def test_a_query_that_cannot_be_is_refused(query: bytes, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        start_of(query, LATEST)


def test_an_origin_that_cannot_be_is_refused() -> None:
    with pytest.raises(ApiError, match="known are earliest, latest, a time or offsets"):
        begin(Start("yesterday"))


def test_the_id_of_the_last_event_must_be_a_position() -> None:
    with pytest.raises(ApiError, match="is no position"):
        start_of(b"", LATEST, "null")
    start, others = start_of(b"max=7&group=g", LATEST, "0:1", ("max",))
    assert start == Start(LATEST, "g", None, {0: 1})
    assert others == {"max": "7"}
