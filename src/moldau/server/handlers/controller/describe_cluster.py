"""DescribeCluster v1–2 on the controllers' listener: lists the controllers and says which one is active (KIP-919).
A request for brokers is refused with MISMATCHED_ENDPOINT_TYPE. Here it needs ALTER on the cluster, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.base.cluster_settings import VoterAddress
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.server.handlers.describe_cluster import CONTROLLER_ENDPOINTS, authorized_operations, endpoint_type_error
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


class DescribeControllers:
    api = ApiKey.DESCRIBE_CLUSTER
    versions = (1, 2)

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
