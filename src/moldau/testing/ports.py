"""What a node gets from outside, in memory: work that is done at once, and no peers. For tests without threads and
sockets."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise, resolved
from moldau.client.peers import Peer


def at_once(work: Callable[[], None]) -> Promise[StorageFault | None]:
    """Run blocking work at once instead of in a thread."""
    try:
        work()
    except StorageFault as fault:
        return resolved(fault)
    except Exception as fault:
        raise AssertionError(f"any other fault in a thread stops a node: {fault!r}") from fault
    return resolved(None)


class NoPeers:
    """For a node without peers: any request fails the test."""

    def to(self, host: str, port: int, purpose: str) -> Peer:
        raise AssertionError(f"unexpected connection to {host}:{port} for {purpose}")
