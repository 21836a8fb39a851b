"""What the gateway knows of nodes and topics: asked once for all who want it, and again when it is old."""

from __future__ import annotations

import asyncio

import pytest
from harness.model_brokers import Fault, ModelCluster
from harness.virtual_loop import run_virtual

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.kafka.brokers import TOPIC_AGE_S
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

NEW_PRODUCER = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def test_a_topic_is_asked_for_once_for_all_who_want_it() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=3)
        brokers = cluster.brokers()
        topics = await asyncio.gather(*(brokers.topic("a") for _ in range(50)))
        assert {len(topic.leaders) for topic in topics} == {3}
        assert await brokers.topic("a") is brokers.known("a")
        assert len(cluster.requests) == 1

    run_virtual(main)


def test_who_goes_away_does_not_take_the_answer_from_others() -> None:
    async def main() -> None:
        brokers = ModelCluster(a=3).brokers()
        gone, stays = (asyncio.create_task(brokers.topic("a")) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays).name == "a"

    run_virtual(main)


def test_an_old_topic_is_asked_for_again_while_the_old_one_is_used() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=3)
        brokers = cluster.brokers()
        await brokers.topic("a")
        cluster.create_topic("a", 5)
        await asyncio.sleep(TOPIC_AGE_S + 1)
        assert len((await brokers.topic("a")).leaders) == 3
        await asyncio.sleep(1)
        assert len((await brokers.topic("a")).leaders) == 5
        assert len(cluster.requests) == 2

    run_virtual(main)


def test_a_topic_that_is_gone_is_not_known_any_more() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=3)
        brokers = cluster.brokers()
        await brokers.topic("a")
        cluster.delete_topic("a")
        await asyncio.sleep(TOPIC_AGE_S + 1)
        await brokers.topic("a")
        await asyncio.sleep(1)
        with pytest.raises(KafkaError, match="there is no topic a"):
            await brokers.topic("a")

    run_virtual(main)


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.FROZEN, Fault.SILENT])
def test_the_first_broker_that_answers_is_enough(fault: Fault) -> None:
    async def main() -> None:
        cluster = ModelCluster(a=1)
        brokers = cluster.brokers()
        cluster.faulty = {ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID}
        cluster.faults.extend([fault] * 2)
        assert (await brokers.topic("a")).leaders == {0: 1}
        cluster.faults.extend([fault] * 2)
        response = await brokers.ask_any(ApiKey.INIT_PRODUCER_ID, NEW_PRODUCER)
        assert response.producer_id > 0

    run_virtual(main)


def test_if_none_answers_it_says_so() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=1)
        brokers = cluster.brokers()
        cluster.down = {1, 2, 3}
        with pytest.raises(KafkaError, match="no broker answers: node"):
            await brokers.greet()
        cluster.down = {1, 2}
        await brokers.greet()

    run_virtual(main)


def test_a_node_that_is_not_among_the_brokers_leads_nothing() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=2)
        brokers = cluster.brokers()
        cluster.down = {1}
        topic = await brokers.topic("a")
        led, without_leader = brokers.by_leader(topic, [0, 1, 7])
        assert led == {2: [("a", 1)]}
        assert [str(error) for error in without_leader] == [
            "a-0 has no leader",
            "there is no partition 7: a has the partitions 0 to 1",
        ]
        with pytest.raises(KafkaError) as raised:
            await brokers.ask(1, ApiKey.INIT_PRODUCER_ID, NEW_PRODUCER)
        assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE

    run_virtual(main)


def test_connections_that_rested_are_opened_again() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=1)
        brokers = cluster.brokers()
        await brokers.topic("a")
        brokers.rest()
        before = cluster.connections
        brokers.forget("a")
        await brokers.topic("a")
        assert cluster.connections == before + 1

    run_virtual(main)


def test_who_waits_when_the_connections_are_closed_is_told_at_once() -> None:
    async def main() -> None:
        cluster = ModelCluster(a=1)
        brokers = cluster.brokers()
        cluster.faulty = {ApiKey.METADATA}
        cluster.faults.append(Fault.FROZEN)
        waiting = asyncio.create_task(brokers.topic("a"))
        await asyncio.sleep(1)
        brokers.close()
        began = asyncio.get_running_loop().time()
        with pytest.raises(KafkaError, match="no broker answers"):
            await waiting
        with pytest.raises(KafkaError, match="no broker answers"):
            await brokers.topic("a")
        assert asyncio.get_running_loop().time() == began

    run_virtual(main)
