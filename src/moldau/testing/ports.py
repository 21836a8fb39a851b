"""Ports of a node in memory: what a world without threads and sockets gives it in their place."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise, resolved
from moldau.client.peers import Peer


def at_once(work: Callable[[], None]) -> Promise[StorageFault | None]:
    """In place of a thread for what blocks."""
    try:
        work()
    except StorageFault as fault:
        return resolved(fault)
    return resolved(None)


class NoPeers:
    """A node that is alone asks nobody."""

    def to(self, host: str, port: int, purpose: str) -> Peer:
        raise AssertionError(f"{host}:{port} was to be asked for {purpose}")
