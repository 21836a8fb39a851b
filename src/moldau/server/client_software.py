"""The names and versions of the software of clients, from their ApiVersions requests (KIP-511)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from moldau.base.limits import REMEMBERED_CONNECTIONS_MAX

LENGTH_MAX: Final = 100
"""Of a name and of a version. Anybody may send them, before authentication."""
UNKNOWN: Final = ("unknown", "unknown")
"""As in Kafka, for clients that do not tell."""


class ClientSoftware:
    def __init__(self) -> None:
        self._by_address: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def note(self, address: str, name: str, version: str) -> None:
        """Remember what the client at this address and port told."""
        self._by_address[address] = name[:LENGTH_MAX], version[:LENGTH_MAX]
        self._by_address.move_to_end(address)
        if len(self._by_address) > REMEMBERED_CONNECTIONS_MAX:
            self._by_address.popitem(last=False)

    def of(self, address: str) -> tuple[str, str]:
        return self._by_address.get(address, UNKNOWN)

    def forget(self, address: str) -> None:
        """Forget a connection that has ended."""
        self._by_address.pop(address, None)
