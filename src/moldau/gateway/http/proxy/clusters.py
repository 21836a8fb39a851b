"""v3's calls about the cluster."""

from __future__ import annotations

from moldau.gateway.http.proxy.failures import ProxyError
from moldau.gateway.http.proxy.metadata import metadata
from moldau.gateway.http.proxy.requests import Request


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
