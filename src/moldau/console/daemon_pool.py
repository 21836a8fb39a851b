"""The threads of the console: two pools."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from moldau.web.daemon_pool import DaemonPool

CLUSTER_THREADS: Final = 12
MEMORY_THREADS: Final = 4


class Threads:
    """Two pools: requests that wait for the cluster cannot hold up those that answer from memory."""

    def __init__(self) -> None:
        self._cluster = DaemonPool(CLUSTER_THREADS, "cluster")
        self._memory = DaemonPool(MEMORY_THREADS, "memory")

    async def run(self, asks_cluster: bool, function: Any, *arguments: Any) -> Any:
        pool = self._cluster if asks_cluster else self._memory
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    def stop(self) -> None:
        for pool in (self._cluster, self._memory):
            pool.shutdown(wait=False, cancel_futures=True)
