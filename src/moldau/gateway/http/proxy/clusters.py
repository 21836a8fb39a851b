"""v3's calls about the cluster and its topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.requests.topics import NewTopic, create_topics_request, delete_topics_request
from moldau.gateway.http.intake import off_the_loop
from moldau.gateway.http.proxy.failures import PAYLOAD, UNKNOWN_TOPIC, ProxyError, unprocessable
from moldau.gateway.http.proxy.metadata import found_topic, metadata, partitions_of
from moldau.gateway.http.proxy.requests import (
    JSON,
    NO_CONTENT,
    Answer,
    Request,
    json_answer,
    parsed,
    partition_of_path,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsResponse
from moldau.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

CHANGE_MS: Final = 15_000
"""How long the cluster may take to create or delete a topic."""
TOPIC_COST: Final = 6_000
PARTITION_COST: Final = 4_000
"""Of describing one, compared with that of reading bytes."""
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=1 << 14)]
NodeId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


class Config(msgspec.Struct):
    name: str
    value: str | None = None


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    topic_name: str
    partitions_count: Count | None = None
    replication_factor: Replicas | None = None
    replicas_assignments: dict[str, list[NodeId]] = {}
    """The brokers of each partition, by its number."""
    configs: list[Config] = []
    validate_only: bool = False


_create_topic: Final = msgspec.json.Decoder(CreateTopic)


class Clusters:
    """The gateway has one cluster; its id is part of each path."""

    def __init__(self) -> None:
        self._id: str | None = None

    async def checked_id(self, request: Request) -> str:
        """Return the id of the cluster. ProxyError if the path has another."""
        cluster_id = await self._known_id(request)
        if request.names[0] != cluster_id:
            raise ProxyError(404, 404, f"Cluster {request.names[0][:100]} cannot be found: this is {cluster_id}")
        return cluster_id

    async def _known_id(self, request: Request) -> str:
        if self._id is None:
            self._id = (await metadata(request.account, [])).cluster_id or ""
        return self._id

    # --- clusters ---------------------------------------------------------------------------------------------------

    async def all(self, request: Request) -> Answer:
        cluster_id = await self._known_id(request)
        response = await metadata(request.account, [])
        urls = _Urls(request, cluster_id)
        clusters = [_cluster(urls, cluster_id, response.controller_id)]
        return _list("KafkaClusterList", f"{request.base_url}/v3/clusters", clusters)

    async def one(self, request: Request) -> Answer:
        cluster_id = await self.checked_id(request)
        response = await metadata(request.account, [])
        return json_answer(_cluster(_Urls(request, cluster_id), cluster_id, response.controller_id), JSON)

    # --- topics -----------------------------------------------------------------------------------------------------

    async def topics(self, request: Request) -> Answer:
        urls = _Urls(request, await self.checked_id(request))
        response = await metadata(request.account, None)
        found = sorted((each for each in response.topics if not each.error_code), key=lambda each: each.name or "")
        return await off_the_loop(
            len(found) * TOPIC_COST,
            lambda: _list("KafkaTopicList", urls.of("topics"), [_topic(urls, each) for each in found]),
        )

    async def topic(self, request: Request) -> Answer:
        urls = _Urls(request, await self.checked_id(request))
        return json_answer(_topic(urls, await _found(request)), JSON)

    async def create_topic(self, request: Request) -> Answer:
        urls = _Urls(request, await self.checked_id(request))
        request.require_type(JSON)
        body = await request.body()
        if not body:
            raise unprocessable("Payload error. Request body is empty. Data is required.", PAYLOAD)
        wanted = parsed(_create_topic, body)
        create = create_topics_request([_new_topic(wanted)], CHANGE_MS, wanted.validate_only)
        response: CreateTopicsResponse = await request.account.ask(ApiKey.CREATE_TOPICS, create)
        for result in response.topics:
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)
            url = (b"location", urls.of("topics", wanted.topic_name).encode("latin-1", "replace"))
            status = 200 if wanted.validate_only else 201
            return json_answer(_created(urls, wanted, result), JSON, status, [url])
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the cluster does not say whether it created the topic")

    async def delete_topic(self, request: Request) -> Answer:
        await self.checked_id(request)
        name = request.names[1]
        delete = delete_topics_request(CHANGE_MS, [name])
        response: DeleteTopicsResponse = await request.account.ask(ApiKey.DELETE_TOPICS, delete)
        for result in response.responses:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise _unknown_topic(name)
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)
        return NO_CONTENT

    # --- partitions -------------------------------------------------------------------------------------------------

    async def partitions(self, request: Request) -> Answer:
        urls = _Urls(request, await self.checked_id(request))
        found = await _found(request)
        name = found.name or ""
        return await off_the_loop(
            len(found.partitions) * PARTITION_COST,
            lambda: _list(
                "KafkaPartitionList",
                urls.of("topics", name, "partitions"),
                [_partition(urls, name, each) for each in partitions_of(found)],
            ),
        )

    async def partition(self, request: Request) -> Answer:
        urls = _Urls(request, await self.checked_id(request))
        index = partition_of_path(request.names[2])
        found = await _found(request)
        for each in found.partitions:
            if each.partition_index == index:
                return json_answer(_partition(urls, found.name or "", each), JSON)
        raise ProxyError(404, 404, f"Partition {index} cannot be found")


class _Urls:
    """The addresses and names of what a cluster has."""

    def __init__(self, request: Request, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._base = f"{request.base_url}/v3/clusters/{quote(cluster_id, safe='')}"

    def of(self, *parts: str) -> str:
        return "/".join([self._base, *(quote(each, safe="") for each in parts)])

    def metadata(self, *parts: str) -> dict[str, str]:
        pairs = zip(("topic", "partition"), parts[1::2], strict=False)
        names = "".join(f"/{kind}={name}" for kind, name in pairs)
        return {"self": self.of(*parts), "resource_name": f"crn:///kafka={self.cluster_id}{names}"}

    def related(self, *parts: str) -> dict[str, str]:
        return {"related": self.of(*parts)}


def _list(kind: str, url: str, data: Sequence[dict[str, Any]]) -> Answer:
    return json_answer({"kind": kind, "metadata": {"self": url, "next": None}, "data": data}, JSON)


def _cluster(urls: _Urls, cluster_id: str, controller: int) -> dict[str, Any]:
    return {
        "kind": "KafkaCluster",
        "metadata": urls.metadata(),
        "cluster_id": cluster_id,
        "controller": urls.related("brokers", str(controller)),
        "acls": urls.related("acls"),
        "brokers": urls.related("brokers"),
        "broker_configs": urls.related("broker-configs"),
        "consumer_groups": urls.related("consumer-groups"),
        "topics": urls.related("topics"),
        "partition_reassignments": urls.related("topics", "-", "partitions", "-", "reassignment"),
    }


def _topic(urls: _Urls, topic: MetadataResponseTopic) -> dict[str, Any]:
    replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
    return _topic_data(urls, topic.name or "", topic.is_internal, replicas, len(topic.partitions))


def _created(urls: _Urls, wanted: CreateTopic, result: CreatableTopicResult) -> dict[str, Any]:
    """Brokers say since version 5 what they have chosen."""
    partitions = max(result.num_partitions, wanted.partitions_count or len(wanted.replicas_assignments))
    replicas = max(result.replication_factor, wanted.replication_factor or 0)
    return _topic_data(urls, wanted.topic_name, False, replicas, partitions)


def _topic_data(urls: _Urls, name: str, is_internal: bool, replicas: int, partitions: int) -> dict[str, Any]:
    return {
        "kind": "KafkaTopic",
        "metadata": urls.metadata("topics", name),
        "cluster_id": urls.cluster_id,
        "topic_name": name,
        "is_internal": is_internal,
        "replication_factor": replicas,
        "partitions_count": partitions,
        "partitions": urls.related("topics", name, "partitions"),
        "configs": urls.related("topics", name, "configs"),
        "partition_reassignments": urls.related("topics", name, "partitions", "-", "reassignment"),
        "authorized_operations": [],
    }


def _partition(urls: _Urls, topic: str, partition: MetadataResponsePartition) -> dict[str, Any]:
    index = str(partition.partition_index)
    place = ("topics", topic, "partitions", index)
    has_leader = partition.leader_id >= 0
    return {
        "kind": "KafkaPartition",
        "metadata": urls.metadata(*place),
        "cluster_id": urls.cluster_id,
        "topic_name": topic,
        "partition_id": partition.partition_index,
        "leader": urls.related(*place, "replicas", str(partition.leader_id)) if has_leader else None,
        "replicas": urls.related(*place, "replicas"),
        "reassignment": urls.related(*place, "reassignment"),
    }


def _new_topic(wanted: CreateTopic) -> NewTopic:
    configs = {each.name: each.value for each in wanted.configs if each.value is not None}
    assignment = wanted.replicas_assignments
    if not assignment:
        return NewTopic(wanted.topic_name, wanted.partitions_count or -1, wanted.replication_factor or -1, configs)
    try:
        return NewTopic(
            wanted.topic_name, configs=configs, assignment=[assignment[str(n)] for n in range(len(assignment))]
        )
    except KeyError:
        raise unprocessable("replicas_assignments must have the partitions from 0 on, without a gap") from None


async def _found(request: Request) -> MetadataResponseTopic:
    name = request.names[1]
    try:
        return await found_topic(request.account, name)
    except ProxyError:
        raise _unknown_topic(name) from None


def _unknown_topic(name: str) -> ProxyError:
    return ProxyError(404, UNKNOWN_TOPIC, f"This server does not host this topic-partition: there is no {name[:250]}")
