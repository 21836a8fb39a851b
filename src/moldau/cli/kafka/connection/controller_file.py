"""Takes the id, metadata directory and endpoints out of a controller's properties, for `kafka-metadata-quorum
add-controller`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from moldau.base.errors import StorageFault
from moldau.base.ids import Uuid
from moldau.base.limits import PORT_MAX
from moldau.base.settings.accepted import METADATA_LOG_DIR
from moldau.base.settings.log import LOG_DIRS
from moldau.base.settings.node import ADVERTISED_LISTENERS, CONTROLLER_LISTENER_NAMES, LISTENERS, NODE_ID, PROCESS_ROLES
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_values import Endpoint
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import read

IS_IT_A_CONTROLLER_FILE: Final = "Is this a valid controller configuration file?"
"""Kafka's question at the end of its errors."""
_LISTENER: Final = re.compile(r"(?P<name>\w[\w.-]*)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:]*)):(?P<port>[0-9]{1,9})")


def controller_id(settings: Mapping[str, str]) -> int:
    text = settings.get(NODE_ID.name)
    if text is None:
        raise ToolFailed(f"node.id not found in configuration file. {IS_IT_A_CONTROLLER_FILE}")
    try:
        node_id = parse_integer(text)
    except ValueError as error:
        raise ToolFailed(str(error)) from None
    if node_id < 0:
        raise ToolFailed(f"node.id was negative in configuration file. {IS_IT_A_CONTROLLER_FILE}")
    if "controller" not in settings.get(PROCESS_ROLES.name, ""):
        raise ToolFailed(f"process.roles did not contain 'controller' in configuration file. {IS_IT_A_CONTROLLER_FILE}")
    return node_id


def metadata_directory(settings: Mapping[str, str]) -> str:
    if METADATA_LOG_DIR.name in settings:
        return settings[METADATA_LOG_DIR.name]
    if LOG_DIRS.name in settings:
        return settings[LOG_DIRS.name].strip().split(",")[0]
    raise ToolFailed(f"Neither metadata.log.dir nor log.dirs were found. {IS_IT_A_CONTROLLER_FILE}")


def read_directory_id(directory: str) -> Uuid:
    """Read the directory id from meta.properties in a metadata directory."""
    try:
        meta = read(DiskFiles(), directory)
    except StorageFault as error:
        raise ToolFailed(str(error)) from error
    if meta is None:
        raise ToolFailed(f"Unable to read meta.properties from {directory}")
    return meta.directory_id


def controller_endpoints(settings: Mapping[str, str]) -> list[Endpoint]:
    """Return the endpoints of the controller's listeners, with their advertised addresses if there are any."""
    endpoint_by_listener: dict[str, Endpoint] = {}
    # An advertised address replaces the listener's, so it comes second.
    for setting in (LISTENERS.name, ADVERTISED_LISTENERS.name):
        for text in settings.get(setting, "").split(","):
            if text.strip():
                endpoint = _parse_endpoint(text.strip())
                endpoint_by_listener[endpoint.listener] = endpoint
    if CONTROLLER_LISTENER_NAMES.name not in settings:
        raise ToolFailed(f"controller.listener.names was not found. {IS_IT_A_CONTROLLER_FILE}")
    endpoints = []
    for name in settings[CONTROLLER_LISTENER_NAMES.name].split(","):
        listener = name.strip().upper()
        if listener not in endpoint_by_listener:
            raise ToolFailed(f"Cannot find information about controller listener name: {listener}")
        endpoints.append(endpoint_by_listener[listener])
    return endpoints


def _parse_endpoint(text: str) -> Endpoint:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ToolFailed(f"Unable to parse a listener: {text}; write NAME://HOST:PORT")
    port = int(match["port"])
    if port > PORT_MAX:
        raise ToolFailed(f"Unable to parse a listener: {text}; its port is greater than {PORT_MAX}")
    return Endpoint(match["name"].upper(), match["v6"] or match["host"] or "localhost", port)
