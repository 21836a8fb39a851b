"""The settings of a secured node and of its clients, with Kafka's names. Pure: texts in, texts out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.base.listeners import WILDCARD_HOSTS, parse_listener
from moldau.base.properties import render
from moldau.base.settings.node import (
    ADVERTISED_LISTENERS,
    CONTROLLER_LISTENER_NAMES,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
)
from moldau.base.settings.security import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    DELEGATION_TOKEN_SECRET_KEY,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_TYPE,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_TYPE,
    SUPER_USERS,
)
from moldau.local_cluster import HOST, NodeAddress, node_properties
from moldau.secure_setup.authority import NODE_NAME
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.security.sasl.jaas import SCRAM_MODULE

ADMIN: Final = "admin"
CLIENTS_LISTENER: Final = "SASL_SSL"
"""The listener for clients, called like its protocol, as in most tutorials."""
NODES_LISTENER: Final = "NODES"
"""The listener by which the brokers of a cluster reach each other, on this machine only."""
CONTROLLER_LISTENER: Final = "CONTROLLER"
CERTIFICATES: Final = SSL_TRUSTSTORE_CERTIFICATES.name
MECHANISM: Final = "SCRAM-SHA-512"
MECHANISMS: Final = (MECHANISM, "SCRAM-SHA-256")


def secured_properties(key_store: str, trust_store: str, token_key: str = "") -> dict[str, str]:
    """Return what every secured node has: TLS, SCRAM for clients, ACLs, and the key of delegation tokens if there is
    one."""
    tokens = {DELEGATION_TOKEN_SECRET_KEY.name: token_key} if token_key else {}
    return {
        SSL_KEYSTORE_TYPE.name: "PEM",
        SSL_KEYSTORE_LOCATION.name: key_store,
        SSL_TRUSTSTORE_TYPE.name: "PEM",
        SSL_TRUSTSTORE_LOCATION.name: trust_store,
        SASL_ENABLED_MECHANISMS.name: ",".join(MECHANISMS),
        AUTHORIZER_CLASS_NAME.name: STANDARD_AUTHORIZER,
        SUPER_USERS.name: f"User:{ADMIN};User:CN={NODE_NAME}",
        ALLOW_EVERYONE_IF_NO_ACL_FOUND.name: "false",
        **tokens,
    }


def secured_node_properties(
    node: NodeAddress,
    nodes: Sequence[NodeAddress],
    data_dir: str,
    stores: tuple[str, str],
    listen: str,
    advertise: str | None,
    token_key: str = "",
) -> dict[str, str]:
    """Return the server.properties of one node of a secured cluster on this machine.

    Nodes reach each other on the loopback interface, with client certificates of the same authority. So they need no
    passwords, and the advertised name need not be reachable from this machine. `stores` are the key and trust store.
    """
    listeners = {
        CLIENTS_LISTENER: f"{bracketed(listen)}:{node.port}",
        NODES_LISTENER: f"{HOST}:{node.internal_port}",
        CONTROLLER_LISTENER: f"{HOST}:{node.controller_port}",
    }
    properties = node_properties(node, nodes, data_dir)
    del properties[ADVERTISED_LISTENERS.name]
    properties |= {
        LISTENERS.name: _listeners(listeners),
        LISTENER_SECURITY_PROTOCOL_MAP.name: (
            f"{CLIENTS_LISTENER}:SASL_SSL,{NODES_LISTENER}:SSL,{CONTROLLER_LISTENER}:SSL"
        ),
        INTER_BROKER_LISTENER_NAME.name: NODES_LISTENER,
        CONTROLLER_LISTENER_NAMES.name: CONTROLLER_LISTENER,
        f"listener.name.{NODES_LISTENER.lower()}.ssl.client.auth": "required",
        f"listener.name.{CONTROLLER_LISTENER.lower()}.ssl.client.auth": "required",
        **secured_properties(*stores, token_key),
    }
    if advertise is not None:
        advertised = {
            CLIENTS_LISTENER: f"{bracketed(advertise)}:{node.port}",
            NODES_LISTENER: listeners[NODES_LISTENER],
        }
        properties[ADVERTISED_LISTENERS.name] = _listeners(advertised)
    return properties


def internal_client_properties(key_store: str, trust_store: str) -> dict[str, str]:
    """Return how a program on this machine connects to the nodes' own listener, as one of them."""
    return {
        "security.protocol": "SSL",
        SSL_KEYSTORE_TYPE.name: "PEM",
        SSL_KEYSTORE_LOCATION.name: key_store,
        SSL_TRUSTSTORE_TYPE.name: "PEM",
        SSL_TRUSTSTORE_LOCATION.name: trust_store,
    }


def client_properties(user: str, password: str, authority: str) -> dict[str, str]:
    """Return the properties of a client, with Java's names. They name no file, so that they can be copied elsewhere."""
    return {
        "security.protocol": "SASL_SSL",
        SSL_TRUSTSTORE_TYPE.name: "PEM",
        CERTIFICATES: authority,
        **login_properties(user, password),
    }


def login_properties(user: str, password: str) -> dict[str, str]:
    jaas = f'{SCRAM_MODULE} required username="{_quoted(user)}" password="{_quoted(password)}";'
    return {"sasl.mechanism": MECHANISM, SASL_JAAS_CONFIG.name: jaas}


def client_file(properties: Mapping[str, str]) -> str:
    """Return the text of a client properties file, with certificates over several lines."""
    return "".join(
        render({key: value.rstrip("\n")}).replace("\\n", "\\n\\\n") if key == CERTIFICATES else render({key: value})
        for key, value in properties.items()
    )


def advertised_again(listeners: str, advertise: str) -> str | None:
    """Return advertised.listeners for HOST or HOST:PORT of an earlier start. None if the listeners are not one for
    clients on all interfaces: then it may have been meant for others."""
    try:
        (listener,) = (parse_listener(text, {CLIENTS_LISTENER: "SASL_SSL"}) for text in listeners.split(","))
    except ValueError:
        return None
    if listener.host not in WILDCARD_HOSTS:
        return None
    return f"{CLIENTS_LISTENER}://{with_port(advertise, str(listener.port))}"


def name_to_keep(listener: str, port: int) -> str:
    """Return HOST or HOST:PORT of an advertised listener; without the port if it is that of the listener itself."""
    advertised = parse_listener(listener, {CLIENTS_LISTENER: "SASL_SSL"})
    return bracketed(advertised.host) if advertised.port == port else advertised.address


def with_port(address: str, port: str) -> str:
    """Return HOST:PORT for HOST or HOST:PORT."""
    has_port = re.fullmatch(r"(\[[^]]+\]|[^:]+):[0-9]+", address)
    host = f"[{address}]" if address.count(":") > 1 and not address.startswith("[") else address
    return address if has_port else f"{host}:{port}"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listeners(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
