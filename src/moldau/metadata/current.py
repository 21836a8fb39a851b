"""The image that is in force: what is committed. Handlers read it, followers are told when it changes."""

from __future__ import annotations

from collections.abc import Callable

from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage

Follower = Callable[[MetadataImage, Changes], None]


class CurrentImage:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        self._followers.append(follower)

    def publish(self, image: MetadataImage, changes: Changes) -> None:
        """First the followers act on it, so that whoever reads it finds what it speaks of."""
        for follower in self._followers:
            follower(image, changes)
        self.image = image
