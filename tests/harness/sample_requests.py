"""A request of any API that names one resource of each kind, made from the fields of its message class."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from typing import Any

from harness.in_memory_node import batch
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.frames import request_frame
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.fetch_snapshot import RequestSnapshotId
from moldau.wire.messages.update_raft_voter import KRaftVersionFeature
from moldau.wire.schema import Message

RESOURCE = "resource"
"""The name of every topic, group and transactional id."""
ANY, LITERAL, READ, ALLOW, TOPIC = 1, 3, 3, 3, 2

VERSIONS = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 9,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
}
"""Versions in which topics have names instead of ids, or that ordinary clients send; the default is the latest."""
OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "ProduceRequest": {"acks": 1},
    "PartitionProduceData": {"records": batch()},
    "MetadataRequest": {"allow_auto_topic_creation": False},
    "MetadataRequestTopic": {"name": RESOURCE},
    "DescribeConfigsResource": {"resource_type": TOPIC},
    "AlterConfigsResource": {"resource_type": TOPIC, "configs": ()},
    "ListOffsetsRequest": {"replica_id": -1},
    "DescribeAclsRequest": {
        "resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY,
    },
    "DeleteAclsFilter": {
        "resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY,
    },
    "AclCreation": {
        "resource_type": TOPIC, "resource_pattern_type": LITERAL, "operation": READ, "permission_type": ALLOW,
        "principal": "User:somebody",
    },
    "CreateDelegationTokenRequest": {"owner_principal_type": "User", "owner_principal_name": RESOURCE},
    "CreatableRenewers": {"principal_type": "User"},
    "InitProducerIdRequest": {"transactional_id": RESOURCE, "transaction_timeout_ms": 1000},
    "EnvelopeRequest": {
        "request_data": bytes(
            request_frame(ApiKey.CREATE_TOPICS, 7, 0, None, CreateTopicsRequest([CreatableTopic("new", 1, 1)]))
        )[4:],
        "request_principal": None,
    },
    "BrokerRegistrationRequest": {"broker_id": 77},
    "BrokerHeartbeatRequest": {"broker_id": 77},
    "ShareFetchRequest": {"group_id": RESOURCE, "member_id": "member"},
    "ShareAcknowledgeRequest": {"group_id": RESOURCE, "member_id": "member"},
    "JoinGroupRequest": {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000},
    "DeleteTopicsRequest": {"topics": ()},
    "OffsetFetchRequest": {"topics": ()},
    "DescribeShareGroupOffsetsRequestGroup": {"topics": ()},
    "AddPartitionsToTxnRequest": {"transactions": ()},
    "RequestPartitionSnapshot": {"snapshot_id": RequestSnapshotId()},
    "UpdateRaftVoterRequest": {"k_raft_version_feature": KRaftVersionFeature()},
    "UnregisterBrokerRequest": {"broker_id": 77},
    "RemoveRaftVoterRequest": {"voter_id": 77},
}  # fmt: skip


def sample_request(api: ApiKey) -> Message:
    return _fill(request_class(api))


def _fill(cls: type[Message]) -> Any:
    module = importlib.import_module(cls.__module__)
    fields = list(inspect.signature(cls.__init__).parameters.values())[1:]
    known = OVERRIDES.get(cls.__name__, {})
    return cls(**{field.name: known.get(field.name, _value(field, module)) for field in fields})


def _value(field: inspect.Parameter, module: Any) -> Any:
    kind = str(field.annotation)
    elements = re.match(r"Sequence\[(\w+)\]", kind)
    if elements is None:
        return RESOURCE if kind == "str" else field.default
    match elements[1]:
        case "str":
            return [RESOURCE]
        case "int":
            return [0]
        case "bytes":
            return []
    return [_fill(getattr(module, elements[1]))]
