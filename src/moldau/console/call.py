"""One request to the API, as its handler sees it: plain values, checked. Handlers run in threads and may block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from moldau.base.clock import WallMs
from moldau.console.access import Access
from moldau.console.collector.state import ClusterState
from moldau.console.options import ConsoleOptions
from moldau.web.failures import bad_request

if TYPE_CHECKING:
    from moldau.runtime.views.ports import BatchesTask
    from moldau.views.jobs import Matching, ViewFailed

T = TypeVar("T")
AFTER_CHANGE_SECONDS: Final = 2.0
_MISSING: Final = object()


@dataclass(frozen=True)
class Call:
    options: ConsoleOptions
    access: Access
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    def match(self, task: BatchesTask) -> Matching | ViewFailed:
        """Evaluate the condition of a search."""
        assert self.access.conditions is not None, "a console evaluates conditions"
        return self.access.conditions.match(self.access.user or "", task)

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.query.get(name)
        if text is None:
            return default
        if text not in ("true", "false"):
            raise bad_request(f"{name}: expected true or false")
        return text == "true"

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Return a field of the body, None if it is missing or null."""
        if isinstance(self.body, dict) and self.body.get(name) is None:
            return None
        return self.field(name, kind)

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return a whole number of the body that is in these bounds, None if it is missing or null."""
        value = self.optional(name, int)
        if value is not None and not least <= value <= most:
            raise bad_request(f"{name}: expected a whole number from {least} to {most}")
        return value

    def field(self, name: str, kind: type[T], default: T | object = _MISSING) -> T:
        """Return a field of the body, which must be of this type."""
        if not isinstance(self.body, dict):
            raise bad_request("the body must be a JSON object")
        value = self.body.get(name, _MISSING)
        if value is _MISSING or (value is None and default is not _MISSING):
            if default is _MISSING:
                raise bad_request(f"{name} is missing")
            return cast(T, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise bad_request(f"{name}: expected {_KINDS.get(kind, kind.__name__)}")
        return value

    def only_fields(self, allowed: Iterable[str]) -> None:
        if self.body is not None and not isinstance(self.body, dict):
            raise bad_request("the body must be a JSON object")
        unknown = sorted(set(self.body or ()) - set(allowed))
        if unknown:
            raise bad_request(f"unknown field {unknown[0][:40]!r}; known are {', '.join(allowed)}")

    def confirmed(self, name: str) -> None:
        """The user wrote the name of what is lost."""
        if self.field("confirm", str) != name:
            raise bad_request(f"confirm: write {name} to confirm")

    def changed(self, is_seen: Callable[[ClusterState], bool] = lambda state: True) -> None:
        """The cluster was changed: let the pages see it. `is_seen` says whether the collector has seen it: the broker
        that it asks may hear of it a little later."""
        self.access.collector.await_users_change(AFTER_CHANGE_SECONDS, is_seen)


_KINDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}

Handler = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    handler: Handler
    parameters: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    status: int = 200
    asks_cluster: bool = True
    """False if it answers from memory: it then never waits behind requests that do not."""
    changes: bool = True
    """Of those with a method other than GET: False if read-only consoles may do it too."""


def now_ms() -> WallMs:
    return WallMs(time.time_ns() // 1_000_000)
