"""v2's calls about topics, their partitions and brokers."""

from __future__ import annotations

from typing import Any, Final

from moldau.base.errors import ErrorCode
from moldau.gateway.http.intake import off_the_loop
from moldau.gateway.http.proxy.failures import partition_not_found
from moldau.gateway.http.proxy.metadata import found_topic, metadata, partitions_of, topic_configs
from moldau.gateway.http.proxy.requests import Answer, Request, json_answer, partition_of_path
from moldau.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

PARTITION_COST: Final = 500
"""Of describing one, compared with that of reading bytes."""


async def names(request: Request) -> Answer:
    response = await metadata(request.account, None)
    return json_answer(sorted(topic.name or "" for topic in response.topics if not topic.error_code))


async def topic(request: Request) -> Answer:
    (name,) = request.names
    found = await found_topic(request.account, name)
    configs = await topic_configs(request.account, name)
    size = len(found.partitions) * PARTITION_COST
    return await off_the_loop(
        size, lambda: json_answer({"name": name, "configs": configs, "partitions": _described(found)})
    )


async def partitions(request: Request) -> Answer:
    (name,) = request.names
    found = await found_topic(request.account, name)
    return await off_the_loop(len(found.partitions) * PARTITION_COST, lambda: json_answer(_described(found)))


async def partition(request: Request) -> Answer:
    return json_answer(_partition(await _found_partition(request)))


async def offsets(request: Request) -> Answer:
    found = await _found_partition(request)
    bounds = await request.account.bounds(request.names[0])
    if found.partition_index not in bounds:
        raise partition_not_found(found.partition_index)
    first, end = bounds[found.partition_index]
    return json_answer({"beginning_offset": first, "end_offset": end})


async def brokers(request: Request) -> Answer:
    response = await metadata(request.account, [])
    return json_answer({"brokers": sorted(each.node_id for each in response.brokers)})


async def _found_partition(request: Request) -> MetadataResponsePartition:
    name, text = request.names
    index = partition_of_path(text)
    found = await found_topic(request.account, name)
    for each in found.partitions:
        if each.partition_index == index:
            return each
    raise partition_not_found(index)


def _described(found: MetadataResponseTopic) -> list[dict[str, Any]]:
    return [_partition(each) for each in partitions_of(found)]


def _partition(found: MetadataResponsePartition) -> dict[str, Any]:
    has_leader = found.error_code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
    leader = found.leader_id if has_leader else -1
    replicas = [
        {"broker": node, "leader": node == leader, "in_sync": node in found.isr_nodes} for node in found.replica_nodes
    ]
    return {"partition": found.partition_index, "leader": leader, "replicas": replicas}
