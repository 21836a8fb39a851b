"""Reads the properties file of a controller: its id, its metadata directory, its listeners."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from moldau.base.errors import StorageFault
from moldau.base.ids import Uuid
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.cluster_values import Endpoint
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import read

NOT_A_CONTROLLER: Final = "Is this a valid controller configuration file?"
_LISTENER: Final = re.compile(r"(?P<name>\w[\w.-]*)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:]*)):(?P<port>\d+)")


def controller_id(settings: Mapping[str, str]) -> int:
    text = settings.get("node.id")
    if text is None:
        raise ToolFailed(f"node.id not found in configuration file. {NOT_A_CONTROLLER}")
    try:
        node_id = int(text)
    except ValueError:
        raise ToolFailed(f'For input string: "{text}"') from None
    if node_id < 0:
        raise ToolFailed(f"node.id was negative in configuration file. {NOT_A_CONTROLLER}")
    if "controller" not in settings.get("process.roles", ""):
        raise ToolFailed(f"process.roles did not contain 'controller' in configuration file. {NOT_A_CONTROLLER}")
    return node_id


def metadata_directory(settings: Mapping[str, str]) -> str:
    if "metadata.log.dir" in settings:
        return settings["metadata.log.dir"]
    if "log.dirs" in settings:
        return settings["log.dirs"].strip().split(",")[0]
    raise ToolFailed(f"Neither metadata.log.dir nor log.dirs were found. {NOT_A_CONTROLLER}")


def directory_id(directory: str) -> Uuid:
    try:
        meta = read(DiskFiles(), directory)
    except StorageFault as error:
        raise ToolFailed(str(error)) from error
    if meta is None:
        raise ToolFailed(f"Unable to read meta.properties from {directory}")
    return meta.directory_id


def controller_endpoints(settings: Mapping[str, str]) -> list[Endpoint]:
    """Return the endpoints of the controller's listeners, with their advertised addresses if there are any."""
    listeners = {
        endpoint.listener: endpoint
        for name in ("listeners", "advertised.listeners")
        for text in filter(None, map(str.strip, settings.get(name, "").split(",")))
        for endpoint in [_endpoint(text)]
    }
    if "controller.listener.names" not in settings:
        raise ToolFailed(f"controller.listener.names was not found. {NOT_A_CONTROLLER}")
    endpoints = []
    for name in settings["controller.listener.names"].split(","):
        endpoint = listeners.get(name.strip().upper())
        if endpoint is None:
            raise ToolFailed(f"Cannot find information about controller listener name: {name.strip().upper()}")
        endpoints.append(endpoint)
    return endpoints


def _endpoint(text: str) -> Endpoint:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ToolFailed(f"Unable to parse a listener: {text}; write NAME://HOST:PORT")
    return Endpoint(match["name"].upper(), match["v6"] or match["host"] or "localhost", int(match["port"]))
