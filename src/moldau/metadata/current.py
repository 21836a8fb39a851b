"""The current image, with everything that is committed. Handlers read it; listeners are called when it changes."""

from __future__ import annotations

from collections.abc import Callable

from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage

ImageListener = Callable[[MetadataImage, Changes], None]


class CurrentImage:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[ImageListener] = []

    def add_listener(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    def publish(self, image: MetadataImage, changes: Changes) -> None:
        """Call the listeners, then make the image current: a partition that handlers see in it exists on this node."""
        for on_image in self._listeners:
            on_image(image, changes)
        self.image = image
