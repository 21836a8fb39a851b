"""Names of hosts: those of `Host` headers, and those under which a server may be reached."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from moldau.base.errors import UnusableProperty

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^][\s/:?#@*]+)(:[0-9]{1,5})?")


def is_allowed_host(header: str, names: frozenset[str]) -> bool:
    """Whether a `Host` header names this server. A page of another site that made its own name point here sends that
    name (DNS rebinding). An address cannot be made to point elsewhere, so any is right."""
    host = host_of(header)
    if not host:
        return False
    return _ip(host) is not None or host == "localhost" or host in names


def allowed_hosts(names: Iterable[str]) -> frozenset[str]:
    """Return names of hosts as `is_allowed_host` compares them: without a port and a final dot."""
    hosts = {name: host_of(name) for name in names}
    for name, host in hosts.items():
        if not host:
            raise UnusableProperty(f"{name}: expected NAME or NAME:PORT")
    return frozenset(hosts.values())


def allowed_origins(names: Iterable[str]) -> frozenset[str]:
    """Return origins of sites as browsers send them: in lower case, without a final slash and the scheme's own port."""
    origins = {name: _origin(name) for name in names}
    for name, origin in origins.items():
        if not _ORIGIN.fullmatch(origin):
            raise UnusableProperty(f"{name}: expected https://NAME or https://NAME:PORT")
    return frozenset(origins.values())


def _origin(name: str) -> str:
    origin = name.lower().removesuffix("/")
    port = {"http": ":80", "https": ":443"}.get(origin.partition(":")[0], "")
    return origin.removesuffix(port)


def host_of(header: str) -> str:
    """Return HOST of HOST, HOST:PORT or [IPV6]:PORT, in lower case; an empty text if it is none of them."""
    host, colon, port = header.strip().lower().rpartition(":")
    if not colon or header.endswith("]"):
        host, port = header.strip().lower(), ""
    if port and not (port.isascii() and port.isdigit()):
        return ""
    if host.startswith("["):
        host = host[1:-1] if host.endswith("]") else ""
    elif ":" in host:
        return ""
    return host.removesuffix(".")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on this host."""
    address = _ip(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
