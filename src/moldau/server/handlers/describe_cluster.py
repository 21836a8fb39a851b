"""DescribeCluster v0–2 lists the brokers. On the controllers' listener, v1–2 list the controllers and say which one is
active (KIP-919); there it needs ALTER on the cluster, as in Kafka. A request for what the other listener lists is
refused with MISMATCHED_ENDPOINT_TYPE."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.cluster_settings import VoterAddress
from moldau.base.errors import ErrorCode
from moldau.metadata.current import CurrentImage
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ALTER, CLUSTER_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


class DescribeCluster(Handler):
    api = ApiKey.DESCRIBE_CLUSTER
    versions = (0, 2)
    needs = (CLUSTER_DESCRIBE,)

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


class DescribeControllers(Handler):
    """DescribeCluster on the controllers' listener."""

    api = DescribeCluster.api
    versions = (1, 2)
    is_on_brokers = False
    is_on_controllers = True
    needs = (CLUSTER_ALTER,)

    def __init__(
        self, controllers: Callable[[], Sequence[VoterAddress]], active_controller: Callable[[], int], cluster_id: str
    ) -> None:
        self._controllers = controllers
        self._active_controller = active_controller
        self._cluster_id = cluster_id

    def answer(self, request: DescribeClusterRequest, caller: Caller) -> DescribeClusterResponse:
        if not caller.access.allows(CLUSTER_ALTER):
            denial = denied(CLUSTER_ALTER)
            return DescribeClusterResponse(error_code=denial.code, error_message=denial.message)
        if request.endpoint_type != CONTROLLER_ENDPOINTS:
            return endpoint_type_error(request)
        return DescribeClusterResponse(
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id=self._cluster_id,
            controller_id=self._active_controller(),
            brokers=[DescribeClusterBroker(each.id, each.host, each.port) for each in self._controllers()],
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
