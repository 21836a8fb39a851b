"""A listener: a name, its security protocol and an address, in Kafka's notation NAME://host:port.

`settings` decides which listeners a node has and which of them it advertises to clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.base.limits import PORT_MAX

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers in requests and records."""
SECURED_PROTOCOLS: Final = frozenset(SECURITY_PROTOCOLS) - {"PLAINTEXT"}
TLS_PROTOCOLS: Final = frozenset(("SSL", "SASL_SSL"))
SASL_PROTOCOLS: Final = frozenset(("SASL_PLAINTEXT", "SASL_SSL"))
WILDCARD_HOSTS: Final = frozenset(("", "0.0.0.0", "::"))
"""Hosts to listen on that mean every interface; clients cannot connect to them."""
SHARED_LISTENER_VARIABLE: Final = "MOLDAU_SHARED_LISTENER"
"""Names the listener whose port several nodes of one machine share; `moldau start --cores` sets it."""

_LISTENER: Final = re.compile(
    r"(?P<name>[\w-]+)://(?:\[(?P<ipv6>[0-9a-fA-F:.%]*)\]|(?P<host>[0-9a-zA-Z._%-]*)):(?P<port>[0-9]{1,5})", re.ASCII
)


def host_and_port(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Listener(NamedTuple):
    name: str
    security_protocol: str
    host: str
    port: int
    """Zero means any free port; the actual one is known once the socket is bound."""

    @property
    def security_protocol_id(self) -> int:
        """The number of the security protocol in requests and records."""
        return SECURITY_PROTOCOLS.index(self.security_protocol)

    @property
    def address(self) -> str:
        return host_and_port(self.host, self.port)

    @property
    def on_this_machine(self) -> Listener:
        """The same listener as this machine itself reaches it: the loopback address if it listens everywhere."""
        if self.host not in WILDCARD_HOSTS:
            return self
        return self._replace(host="::1" if self.host == "::" else "127.0.0.1")

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_listener(text: str, protocols: Mapping[str, str]) -> Listener:
    """Parse one listener. Raise ValueError with a one-line message if the text is not a listener or its name has no
    protocol."""
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match["port"]) > PORT_MAX:
        raise ValueError(f"{text!r} is not a listener; expected NAME://host:port, e.g. PLAINTEXT://localhost:9092")
    name = match["name"].upper()
    if name not in protocols:
        raise ValueError(f"listener {name} has no entry in listener.security.protocol.map")
    host = match["host"] if match["ipv6"] is None else match["ipv6"]
    return Listener(name, protocols[name], host, int(match["port"]))


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,...`. Raise ValueError for anything else."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in item.rpartition(":"))
        if not name or protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"{item!r} is not NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[name] = protocol
    return protocols


def start_command(bootstrap_servers: str) -> str:
    """Return the command that starts a broker where a client has found none, as advice in the error message: plain
    `moldau start` if the address is remote or has the default port."""
    address = bootstrap_servers.partition(",")[0].strip().rpartition("://")[2]
    host, _, port = address.rpartition(":")
    needs_no_option = port == "9092" or host not in ("localhost", "127.0.0.1", "[::1]")
    return "moldau start" if needs_no_option else f"moldau start --listen {address}"
