"""DescribeCluster v0–2. Lists the brokers; endpoint types other than brokers are not served here (KIP-919)."""

from __future__ import annotations

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.errors import ErrorCode
from moldau.metadata.current import CurrentImage
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.requirements import CLUSTER_DESCRIBE
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


class DescribeCluster:
    api = ApiKey.DESCRIBE_CLUSTER
    versions = (0, 2)

    def __init__(self, current: CurrentImage, cluster_id: str) -> None:
        self._current = current
        self._cluster_id = cluster_id

    def answer(self, request: DescribeClusterRequest, caller: Caller) -> DescribeClusterResponse:
        if request.endpoint_type != BROKER_ENDPOINTS:
            return endpoint_type_error(request)
        brokers = [
            DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker in self._current.image.brokers.values()
            if (endpoint := broker.endpoint(caller.listener)) and (request.include_fenced_brokers or not broker.fenced)
        ]
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            # Any active broker: it forwards requests to the controller.
            controller_id=next((broker.broker_id for broker in brokers if not broker.is_fenced), -1),
            brokers=brokers,
            cluster_authorized_operations=authorized_operations(request, caller.access),
        )


def endpoint_type_error(request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return the response to a request for brokers on a controller listener, for controllers on a broker listener, or
    for an unknown endpoint type."""
    is_other_listener = request.endpoint_type in (BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS)
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_other_listener else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Endpoint type {request.endpoint_type} is not served on this listener.",
    )


def authorized_operations(request: DescribeClusterRequest, access: Access) -> int:
    """Return the operations that the client may do with the cluster; none if it may not describe the cluster."""
    if not request.include_cluster_authorized_operations:
        return OPERATIONS_OMITTED
    return allowed_bits(access, ResourceType.CLUSTER) if access.allows_quietly(CLUSTER_DESCRIBE) else 0
