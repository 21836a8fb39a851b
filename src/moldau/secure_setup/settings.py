"""The settings of a secured node and of its clients, with Kafka's names. Pure: texts in, texts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moldau.base.properties import render
from moldau.local_cluster import HOST, NodeAddress, node_properties
from moldau.secure_setup.authority import NODE_NAME
from moldau.security.sasl.jaas import SCRAM_MODULE
from moldau.security.settings import ALLOW_EVERYONE, AUTHORIZER_CLASS, STANDARD_AUTHORIZER, SUPER_USERS

ADMIN: Final = "admin"
CLIENTS_LISTENER: Final = "SASL_SSL"
"""The listener for clients, called like its protocol, as in most tutorials."""
NODES_LISTENER: Final = "NODES"
"""The listener by which the brokers of a cluster reach each other, on this machine only."""
CONTROLLER_LISTENER: Final = "CONTROLLER"
CERTIFICATES: Final = "ssl.truststore.certificates"
MECHANISM: Final = "SCRAM-SHA-512"
MECHANISMS: Final = (MECHANISM, "SCRAM-SHA-256")


def secured_properties(key_store: str, trust_store: str) -> dict[str, str]:
    """Return what every secured node has: TLS, SCRAM for clients, and ACLs."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
        SUPER_USERS: f"User:{ADMIN};User:CN={NODE_NAME}",
        ALLOW_EVERYONE: "false",
    }


def secured_node_properties(
    node: NodeAddress,
    nodes: Sequence[NodeAddress],
    data_dir: str,
    stores: tuple[str, str],
    listen: str,
    advertise: str | None,
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
    del properties["advertised.listeners"]
    properties |= {
        "listeners": _listeners(listeners),
        "listener.security.protocol.map": f"{CLIENTS_LISTENER}:SASL_SSL,{NODES_LISTENER}:SSL,{CONTROLLER_LISTENER}:SSL",
        "inter.broker.listener.name": NODES_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        f"listener.name.{NODES_LISTENER.lower()}.ssl.client.auth": "required",
        f"listener.name.{CONTROLLER_LISTENER.lower()}.ssl.client.auth": "required",
        **secured_properties(*stores),
    }
    if advertise is not None:
        advertised = {
            CLIENTS_LISTENER: f"{bracketed(advertise)}:{node.port}",
            NODES_LISTENER: listeners[NODES_LISTENER],
        }
        properties["advertised.listeners"] = _listeners(advertised)
    return properties


def internal_client_properties(key_store: str, trust_store: str) -> dict[str, str]:
    """Return how a program on this machine connects to the nodes' own listener, as one of them."""
    return {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust_store,
    }


def client_properties(user: str, password: str, authority: str) -> dict[str, str]:
    """Return the properties of a client, with Java's names. They name no file, so that they can be copied elsewhere."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        CERTIFICATES: authority,
        **login_properties(user, password),
    }


def login_properties(user: str, password: str) -> dict[str, str]:
    jaas = f'{SCRAM_MODULE} required username="{_quoted(user)}" password="{_quoted(password)}";'
    return {"sasl.mechanism": MECHANISM, "sasl.jaas.config": jaas}


def client_file(properties: Mapping[str, str]) -> str:
    """Return the text of a client properties file, with certificates over several lines."""
    return "".join(
        render({key: value.rstrip("\n")}).replace("\\n", "\\n\\\n") if key == CERTIFICATES else render({key: value})
        for key, value in properties.items()
    )


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listeners(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
