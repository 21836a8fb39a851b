"""The text of a client's address in ACLs. It is Java's: IPv6 without `::`, an IPv4 address inside IPv6 as IPv4."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(1024)
def acl_host(address: str) -> str:
    """Return the text by which ACLs name a client with this address."""
    try:
        parsed = ip_address(address)
    except ValueError:  # a name, in tests
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in parsed.exploded.partition("%")[0].split(":"))
    return ":".join(groups) + (f"%{parsed.scope_id}" if parsed.scope_id else "")
