"""The addresses of a node on this machine, for clients and for metrics, as its server.properties has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.base.listeners import Listener
from moldau.base.setting_sources import SettingsError
from moldau.cli.connect import CommandFailed
from moldau.settings import load


class ClientHosts(NamedTuple):
    listen: str
    """The interface for clients."""
    advertised: str
    """What clients connect to."""


def client_hosts(properties_file: Path, overrides: Mapping[str, str]) -> ClientHosts | None:
    """Return the hosts of the listener for clients: the first that nodes do not use among themselves. None if the
    settings are invalid: the node itself will report it."""
    try:
        settings = load(str(properties_file), {}, overrides.items())
    except SettingsError:
        return None
    listening = {each.name: each.host for each in settings.listeners}
    for each in settings.advertised_listeners:
        if each.name != settings.inter_broker_listener_name:
            return ClientHosts(listening[each.name], each.host)
    return None


def metrics_listener(properties_file: Path, overrides: Mapping[str, str]) -> Listener | None:
    """Return where the node serves metrics; None if it does not. Raise CommandFailed if the settings are invalid."""
    try:
        return load(str(properties_file), {}, overrides.items()).metrics_listener
    except SettingsError as error:
        raise CommandFailed(str(error)) from error
