"""Broker keys of a node, where it listens, and its connections."""

from __future__ import annotations

from typing import Final

from moldau.base.address_counts import ValidAddressCounts
from moldau.base.config_def import (
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    PER_BROKER,
    PER_LISTENER,
    STRING,
    ConfigDef,
    OneOf,
    Range,
)
from moldau.base.limits import INT32_MAX

# fmt: off
# This node and where it listens
NODE_ID: Final = ConfigDef(
    "node.id", INT, 1, Range(0),
    "This node's number in the cluster; broker.id is its older name.")
BROKER_ID: Final = ConfigDef(
    "broker.id", INT, -1, None,
    "Older name of node.id; -1 means that node.id is used.")
PROCESS_ROLES: Final = ConfigDef(
    "process.roles", LIST, ("broker", "controller"), OneOf(("broker", "controller")),
    "The roles of this process: broker, controller or both.")
BROKER_RACK: Final = ConfigDef(
    "broker.rack", STRING, None, None,
    "The rack of this broker; replicas are spread over racks, and clients may read from their own.")
LISTENERS: Final = ConfigDef(
    "listeners", LIST, ("PLAINTEXT://localhost:9092",), None,
    "Addresses to listen on, NAME://host:port; an empty host means every interface.", update_mode=PER_BROKER)
ADVERTISED_LISTENERS: Final = ConfigDef(
    "advertised.listeners", LIST, None, None,
    "Addresses that clients connect to, if they differ from listeners.")
LISTENER_SECURITY_PROTOCOL_MAP: Final = ConfigDef(
    "listener.security.protocol.map", STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
    "The security protocol of each listener name.", update_mode=PER_BROKER)
INTER_BROKER_LISTENER_NAME: Final = ConfigDef(
    "inter.broker.listener.name", STRING, None, None,
    "The listener that brokers use among each other.")
SECURITY_INTER_BROKER_PROTOCOL: Final = ConfigDef(
    "security.inter.broker.protocol", STRING,
    "PLAINTEXT", OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "The protocol between brokers if inter.broker.listener.name is not set.")
CONTROLLER_LISTENER_NAMES: Final = ConfigDef(
    "controller.listener.names", LIST, ("CONTROLLER",), None,
    "The listeners for controllers, not for clients.")
CONTROLLER_QUORUM_VOTERS: Final = ConfigDef(
    "controller.quorum.voters", LIST, (), None,
    "The controllers that vote, id@host:port each.")
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS: Final = ConfigDef(
    "controller.quorum.bootstrap.servers", LIST, (), None,
    "Addresses of controllers, to find the active one.")

# Sockets, connections and fetches
SOCKET_SEND_BUFFER_BYTES: Final = ConfigDef(
    "socket.send.buffer.bytes", INT, 524_288, None,
    "Send buffer of a client's socket; -1 is the system's default.")
SOCKET_RECEIVE_BUFFER_BYTES: Final = ConfigDef(
    "socket.receive.buffer.bytes", INT, -1, None,
    "Receive buffer of a client's socket; -1 is the system's default.")
SOCKET_REQUEST_MAX_BYTES: Final = ConfigDef(
    "socket.request.max.bytes", INT, 104_857_600, Range(1),
    "Largest request; a larger one closes its connection.")
MAX_CONNECTIONS: Final = ConfigDef(
    "max.connections", INT, INT32_MAX, Range(0),
    "Maximum number of connections, of the broker and of each listener; further ones wait.",
    update_mode=CLUSTER_WIDE, listener_forms=PER_LISTENER)
MAX_CONNECTIONS_PER_IP: Final = ConfigDef(
    "max.connections.per.ip", INT, INT32_MAX, Range(0),
    "Maximum number of connections from one address; further ones are closed.", update_mode=CLUSTER_WIDE)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = ConfigDef(
    "max.connections.per.ip.overrides", STRING, "", ValidAddressCounts(),
    "That number for certain addresses: address:count, comma-separated.", update_mode=CLUSTER_WIDE)
MAX_CONNECTION_CREATION_RATE: Final = ConfigDef(
    "max.connection.creation.rate", INT, INT32_MAX, Range(0),
    "New connections per second, of the broker and of each listener; the rest waits.",
    update_mode=CLUSTER_WIDE, listener_forms=PER_LISTENER)
QUEUED_MAX_REQUEST_BYTES: Final = ConfigDef(
    "queued.max.request.bytes", LONG, -1, None,
    "Memory for requests that are still arriving, of all connections; -1 is 512 MiB.")
CONNECTIONS_MAX_IDLE_MS: Final = ConfigDef(
    "connections.max.idle.ms", LONG, 600_000, None,
    "A connection that is idle for this long is closed; negative: never.")
FETCH_MAX_BYTES: Final = ConfigDef(
    "fetch.max.bytes", INT, 57_671_680, Range(1024),
    "Maximum bytes of a fetch response, whatever the client requests.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = ConfigDef(
    "max.incremental.fetch.session.cache.slots", INT, 1000, Range(0),
    "Maximum number of incremental fetch sessions at a time.")
TELEMETRY_MAX_BYTES: Final = ConfigDef(
    "telemetry.max.bytes", INT, 1_048_576, Range(1),
    "Maximum bytes of the metrics that a client sends in one request, as they are sent.")
