"""The current image: what is committed. Handlers read it; listeners are called when it changes."""

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
        """Listeners act on it first: a handler that sees a partition in the image finds it laid out."""
        for on_image in self._listeners:
            on_image(image, changes)
        self.image = image
