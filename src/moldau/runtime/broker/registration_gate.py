"""Shows a broker's parts the cluster only from the broker's own registration on.

A broker that starts replays what was decided before it went down. Were its partitions laid out by those old images, it
would delete what was given to it later. An image with the registration of this very process is newer than all of them.
"""

from __future__ import annotations

from moldau.base.ids import Uuid
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage


class RegistrationGate:
    def __init__(self, node_id: int, incarnation_id: Uuid, follower: ImageListener) -> None:
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._follower = follower
        self._held: Changes | None = Changes()

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        held = self._held
        if held is None:
            self._follower(image, changes)
            return
        held.topics |= changes.topics
        held.removed += changes.removed
        held.configs |= changes.configs
        held.brokers |= changes.brokers
        broker = image.brokers.get(self._node_id)
        if broker is not None and broker.incarnation_id == self._incarnation_id:
            self._held = None
            held.topics &= set(image.topics)
            self._follower(image, held)
