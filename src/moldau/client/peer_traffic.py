"""The bytes that a node exchanges with other nodes, for metrics."""

from __future__ import annotations


class PeerTraffic:
    """The bytes of all connections for one purpose since the start; metrics read them."""

    __slots__ = ("bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
