"""This machine's name, which hosts are this machine, and what a socket is bound to."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, Final

FALLBACK_HOST: Final = "localhost"
"""The name of a machine whose own name cannot be resolved."""
_UNRESOLVED: Final = (OSError, UnicodeError)
"""A name that nobody knows, or that cannot be a host name, such as one with an empty label or one of 64 characters."""


def own_host() -> str:
    """Return the advertised host of a wildcard listener: this machine's name if it can be resolved."""
    try:
        name = socket.gethostname()
        socket.getaddrinfo(name, None)
    except _UNRESOLVED:
        return FALLBACK_HOST
    return name


def bind_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return the family and the address of a socket that is to listen on a host: the IPv4 address of a name that has
    one, else its IPv6 address. An empty host is every interface. Waits for the resolver; raises OSError as `bind`."""
    if not host:
        return socket.AF_INET, (host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # an empty label, or one that is too long
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not a host name: {error}") from error
    family, *_, address = next((each for each in found if each[0] == socket.AF_INET), found[0])
    return family, address


def is_own_host(host: str) -> bool:
    """Return whether a host is this machine: a socket can be bound to one of its addresses."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except _UNRESOLVED:
        return False
    for family, kind, protocol, _, address in found:
        with suppress(OSError), socket.socket(family, kind, protocol) as attempt:
            attempt.bind(address)
            return True
    return False
