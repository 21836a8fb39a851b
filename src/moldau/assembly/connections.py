"""What the connections of a node share: their limits, their counts and rates, and the counters.

Clients and controllers are counted apart, as in Kafka: many clients do not keep the controllers from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.connection_settings import ConnectionMaxima, connection_maxima
from moldau.base.counters import Counters
from moldau.metadata.apply import Changes
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.server.conversation import ConnectionBudget
from moldau.settings import Settings

INTERNAL_SHARE: Final = 4
"""The listener of the brokers, if there is another one, and that of the controllers may have a quarter of the
connections of clients, besides them."""


class NodeConnections:
    def __init__(
        self, settings: Settings, current: CurrentImage, counters: Counters, connection_descriptors: int
    ) -> None:
        """`connection_descriptors` is how many open files connections of clients may use; brokers and controllers get
        more."""
        self._settings = settings
        self._descriptors_max = connection_descriptors
        limits = settings.connection_limits
        self.budget = ConnectionBudget(limits.receive_budget_bytes, limits, counters)
        internal_max = connection_descriptors // INTERNAL_SHARE
        self._client_listeners = {each.name: connection_descriptors for each in settings.listeners}
        if len(self._client_listeners) > 1:
            self._client_listeners[settings.inter_broker_listener_name] = internal_max
        self._controller_listeners = {each.name: internal_max for each in settings.controller_listeners}
        window = settings.quota_window
        image = current.image
        self.clients = ConnectionQuotas(
            self._maxima(image, self._client_listeners), window, settings.inter_broker_listener_name
        )
        self.controllers = ConnectionQuotas(self._maxima(image, self._controller_listeners), window)
        current.add_listener(self._on_image)

    def _maxima(self, image: MetadataImage, descriptors_by_listener: Mapping[str, int]) -> ConnectionMaxima:
        layers = broker_layers(image, self._settings.node_id, self._settings.broker_layers().static)
        return connection_maxima(layers, descriptors_by_listener, self._descriptors_max)

    def _on_image(self, image: MetadataImage, changes: Changes) -> None:
        if any(kind == ConfigResource.BROKER for kind, _ in changes.configs):
            self.clients.configure(self._maxima(image, self._client_listeners))
            self.controllers.configure(self._maxima(image, self._controller_listeners))
        if changes.has_client_quotas:
            self.clients.set_quotas(image.client_quotas)
            self.controllers.set_quotas(image.client_quotas)
