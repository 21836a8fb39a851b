"""The value of `max.connections.per.ip.overrides`: `address:count`, with commas between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from moldau.base.config_def import ConfigValue
from moldau.base.limits import INT32_MAX


@lru_cache(1024)
def canonical_address(text: str) -> str:
    """Return an IP address in its canonical form; an IPv4-mapped IPv6 address becomes the IPv4 address. Any other text
    is returned as it is."""
    try:
        address = ip_address(text.strip("[]"))
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def parse_address_counts(text: str) -> Mapping[str, int]:
    """Raise ValueError for anything but addresses with counts. Kafka accepts host names too; the name service may block
    or lie, so only addresses are accepted here."""
    counts: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = item.rpartition(":")
        if not count.strip().isdecimal() or int(count) > INT32_MAX:
            raise ValueError(f"{item!r} is not address:count")
        ip_address(host.strip().strip("[]"))
        counts[canonical_address(host.strip())] = int(count)
    return counts


@dataclass(frozen=True, slots=True)
class ValidAddressCounts:
    """Validates `max.connections.per.ip.overrides`."""

    def complaint(self, value: ConfigValue) -> str | None:
        try:
            parse_address_counts(str(value or ""))
        except ValueError as wrong:
            return f"expected IP addresses with counts, e.g. 10.0.0.1:100: {wrong}"
        return None
