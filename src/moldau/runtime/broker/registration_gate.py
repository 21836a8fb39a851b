"""Holds images back from a broker's listeners until they contain the registration of this process.

A broker that starts replays metadata from before it went down. If it laid out its partitions by those old images, it
would delete partitions that were assigned to it later. An image with this process's registration is newer than them.
"""

from __future__ import annotations

from moldau.base.ids import Uuid
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage


class RegistrationGate:
    def __init__(self, node_id: int, incarnation_id: Uuid, listener: ImageListener) -> None:
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._listener = listener
        self._held_changes: Changes | None = Changes()

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        held = self._held_changes
        if held is None:
            self._listener(image, changes)
            return
        for name, indexes in changes.topics.items():
            held.topics.setdefault(name, set()).update(indexes)
        held.removed += changes.removed
        held.configs |= changes.configs
        held.brokers |= changes.brokers
        broker = image.brokers.get(self._node_id)
        if broker is not None and broker.incarnation_id == self._incarnation_id:
            self._held_changes = None
            _drop_what_is_gone(held, image)
            self._listener(image, held)


def _drop_what_is_gone(held: Changes, image: MetadataImage) -> None:
    """Drop topics that were deleted meanwhile, and partitions that a topic of the same name had before."""
    for name in list(held.topics):
        topic = image.topics.get(name)
        if topic is None:
            del held.topics[name]
        else:
            held.topics[name] &= set(range(len(topic.partitions)))
