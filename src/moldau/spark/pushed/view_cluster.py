"""A cluster in which every topic is the view of it that shows one shape.

Callers name the source: in options, checkpoints, messages and the column `topic`. Only requests have the name or the id
of the view. So a reader needs no right on the source once there is a view, and a checkpoint is valid with another
shape, or without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.client.cluster import CONNECT_SECONDS, Cluster, Topic
from moldau.spark.pushed.making import Views, check, find_or_make
from moldau.spark.pushed.shape import Shape, made_by


class ViewCluster(Cluster):
    """Views are looked up or made when the metadata of their topics is first requested, and again if they are gone.

    Only `refresh`, `topic`, `leader`, `list_offsets` and Fetch (by id) use the view; other methods use the topic
    itself.
    """

    def __init__(
        self, bootstrap: str, properties: Mapping[str, str], shape: Shape, timeout_seconds: float = CONNECT_SECONDS
    ) -> None:
        super().__init__(bootstrap, properties, timeout_seconds)
        self._shape = shape
        login = self._security.login
        self._origin = made_by(login.user if login is not None else None)
        self.views: Views = {}
        """By the name of the source. The view's id is kept too: if another topic has got the view's name, the view is
        looked up again."""

    def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
        """Request the metadata of the views of these topics. A topic that does not exist has none, and is removed."""
        if names is None:
            super().refresh(None)
            return
        wanted = list(dict.fromkeys(names))
        self._find([name for name in wanted if name not in self.views])
        self._load(wanted)
        lost = [name for name in wanted if name in self.views and name not in self._topics]
        if lost:
            for name in lost:
                del self.views[name]
            self._find(lost)
            self._load(lost)

    def topics(self) -> Mapping[str, Topic]:
        """Return all topics under their own names, also views."""
        found = dict(super().topics())
        self.forget()
        return found

    def check(self, names: Iterable[str]) -> list[str]:
        """Return those topics that do not exist. Raise KafkaError if one cannot have its view. Makes nothing."""
        return check(self, list(names), self._shape)

    def _find(self, sources: list[str]) -> None:
        if sources:
            self.views |= find_or_make(self, sources, self._shape, self._origin)

    def _load(self, sources: Iterable[str]) -> None:
        by_view = {self.views[source].name: source for source in sources if source in self.views}
        super().refresh(by_view)
        for view, source in by_view.items():
            self._topics.pop(source, None)
            topic = self._topics.pop(view, None)
            is_same = topic is not None and topic.topic_id == self.views[source].topic_id
            if topic is not None and is_same and topic.leaders:  # without partitions it has lost its source
                self._topics[source] = topic
