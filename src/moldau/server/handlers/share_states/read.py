"""ReadShareGroupState v0. What the new leader of a partition asks for; it fences earlier leaders."""

from __future__ import annotations

from moldau.runtime.coordinators.share_apis import READ
from moldau.server.handlers.share_states.state_handler import ShareStateHandler
from moldau.wire.apis import ApiKey


class ReadShareGroupState(ShareStateHandler):
    api = ApiKey.READ_SHARE_GROUP_STATE
    versions = (0, 0)
    messages = READ
