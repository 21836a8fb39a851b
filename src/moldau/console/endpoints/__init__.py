"""The endpoints of the API, one module for each page. docs/console-api.md is their contract."""

from __future__ import annotations

from typing import Final

from moldau.console.call import Endpoint
from moldau.console.endpoints import (
    acls,
    clients,
    cluster,
    gateways,
    groups,
    learn,
    overview,
    pipelines,
    quotas,
    records,
    share_groups,
    tails,
    topics,
    transactions,
    users,
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *acls.ENDPOINTS,
    *clients.ENDPOINTS,
    *cluster.ENDPOINTS,
    *gateways.ENDPOINTS,
    *groups.ENDPOINTS,
    *learn.ENDPOINTS,
    *overview.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *quotas.ENDPOINTS,
    *records.ENDPOINTS,
    *share_groups.ENDPOINTS,
    *tails.ENDPOINTS,
    *topics.ENDPOINTS,
    *transactions.ENDPOINTS,
    *users.ENDPOINTS,
)
STREAMS: Final[tuple[Endpoint, ...]] = (
    *cluster.STREAMS,
    *groups.STREAMS,
    *learn.STREAMS,
    *overview.STREAMS,
    *tails.STREAMS,
    *topics.STREAMS,
)
