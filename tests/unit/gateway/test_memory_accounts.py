"""The accounts in memory do what the ports promise, so that tests of the fronts mean something."""

from __future__ import annotations

import asyncio

import pytest
from harness.gateway_accounts import MemoryCluster

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.ports import Account, NewRecord, Place


def test_records_are_appended_found_and_followed() -> None:
    async def main() -> None:
        cluster = MemoryCluster(a=3)
        anna: Account = cluster.account("anna")
        (place,) = await anna.append("a", [NewRecord(b"1", key=b"k")])
        assert isinstance(place, Place)
        assert await anna.append("a", [NewRecord(b"2", key=b"k")]) == [Place(place.partition, 1)]
        assert (await anna.bounds("a"))[place.partition] == (0, 2)
        assert (await anna.offsets_at("a", cluster.now_ms + 1))[place.partition] == 2
        following = anna.follow("a", {0: 0, 1: 0, 2: 0})
        assert [record.value for record in await following.next()] == [b"1", b"2"]
        assert following.positions[place.partition] == 2
        waiting = asyncio.create_task(following.next())
        await anna.append("a", [NewRecord(b"3", partition=1)])
        assert [record.value for record in await waiting] == [b"3"]
        following.close()
        assert cluster.followings == 0

    asyncio.run(main())


def test_rights_failures_and_the_gate() -> None:
    async def main() -> None:
        cluster = MemoryCluster(a=1)
        cluster.allow("anna", write=["a"])
        cluster.passwords["anna"] = "secret"
        anna = cluster.account("anna", "secret")
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await anna.bounds("a")
        with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
            await cluster.account("anna", "wrong").log_in()
        cluster.fail_append("a", ErrorCode.NOT_ENOUGH_REPLICAS)
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            await anna.append("a", [NewRecord(b"1")])
        cluster.refuse_records("a", ErrorCode.INVALID_RECORD)
        refused, place = await anna.append("a", [NewRecord(b"1"), NewRecord(b"2")])
        assert isinstance(refused, KafkaError)
        assert place == Place(0, 0)
        cluster.hold_appends()
        held = asyncio.create_task(anna.append("a", [NewRecord(b"3")]))
        await cluster.held_append()
        assert len(cluster.topics["a"].records()) == 1
        cluster.let_appends_go()
        assert await held == [Place(0, 1)]

    asyncio.run(main())
