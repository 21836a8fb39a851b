"""Authorization of requests that the controller decides. It happens where the client is connected: on the broker that
forwards the request, or on the controller. One function for each API takes what the client may not do out of the
request, and adds the errors for it to the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from moldau.metadata.current import CurrentImage
from moldau.security.acls.requirements import CLUSTER_ALTER, CLUSTER_ALTER_CONFIGS, CLUSTER_DESCRIBE
from moldau.server.handlers.authorized_requests.acls import authorize_acl_change
from moldau.server.handlers.authorized_requests.authorized import Authorize, whole_request
from moldau.server.handlers.authorized_requests.configs import authorize_alter_configs
from moldau.server.handlers.authorized_requests.delegation_tokens import (
    authorize_create_token,
    authorize_token_change,
)
from moldau.server.handlers.authorized_requests.topics import (
    authorize_create_partitions,
    authorize_create_topics,
    authorize_delete_topics,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenResponse


def authorize_functions(current: CurrentImage, rng: Random, has_authorizer: bool) -> Mapping[ApiKey, Authorize]:
    """Return the function of each API that the controller decides."""
    acl_change = authorize_acl_change(has_authorizer)
    return {
        ApiKey.CREATE_TOPICS: authorize_create_topics,
        ApiKey.DELETE_TOPICS: lambda request, access: authorize_delete_topics(request, access, current.image, rng),
        ApiKey.CREATE_PARTITIONS: authorize_create_partitions,
        ApiKey.ALTER_CONFIGS: authorize_alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: authorize_alter_configs,
        ApiKey.ELECT_LEADERS: whole_request(CLUSTER_ALTER),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: whole_request(CLUSTER_ALTER),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: whole_request(CLUSTER_DESCRIBE),
        ApiKey.UPDATE_FEATURES: whole_request(CLUSTER_ALTER),
        ApiKey.UNREGISTER_BROKER: whole_request(CLUSTER_ALTER),
        ApiKey.DESCRIBE_QUORUM: whole_request(CLUSTER_DESCRIBE),
        ApiKey.ADD_RAFT_VOTER: whole_request(CLUSTER_ALTER),
        ApiKey.REMOVE_RAFT_VOTER: whole_request(CLUSTER_ALTER),
        ApiKey.ALTER_CLIENT_QUOTAS: whole_request(CLUSTER_ALTER_CONFIGS),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: whole_request(CLUSTER_ALTER),
        ApiKey.CREATE_DELEGATION_TOKEN: authorize_create_token,
        ApiKey.RENEW_DELEGATION_TOKEN: authorize_token_change(RenewDelegationTokenResponse),
        ApiKey.EXPIRE_DELEGATION_TOKEN: authorize_token_change(ExpireDelegationTokenResponse),
        ApiKey.CREATE_ACLS: acl_change,
        ApiKey.DELETE_ACLS: acl_change,
    }
