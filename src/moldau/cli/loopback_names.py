"""Advertised names that mean this machine to everybody who resolves them as it does: 127.0.1.1 in its /etc/hosts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

RESOLVE_SECONDS: Final = 1.0
"""A name service that does not answer should not hold a start up."""


def warn_of_loopback(hosts: Iterable[str], resolve: Callable[[str], list[str]] | None = None) -> Iterator[str]:
    """Yield a line for each name that is a loopback address here. Who advertises such an address itself, or localhost,
    knows that: ports of containers are published so."""
    for host in sorted(hosts):
        if host == "localhost" or _is_address(host):
            continue
        addresses = (resolve or _resolve_soon)(host)
        if addresses and all(ip_address(each).is_loopback for each in addresses):
            yield (
                f"the advertised host {host} is {addresses[0]} here: others can connect only if"
                f" {host} is an address of this machine for them; otherwise give another name by --advertise"
                " (advertised.listeners)"
            )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _resolve_soon(host: str) -> list[str]:
    """Return the addresses of a name; nothing if they are not known in time."""
    found: list[str] = []

    def resolve() -> None:
        with suppress(OSError):  # clients elsewhere may know the name
            found.extend(str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None))

    thread = threading.Thread(target=resolve, name="resolve", daemon=True)
    thread.start()
    thread.join(RESOLVE_SECONDS)
    return list(dict.fromkeys(found))
