"""WriteShareGroupState v0–1. What a share group has done with records. v1 adds how many of them it has done with."""

from __future__ import annotations

from moldau.runtime.coordinators.share_apis import WRITE
from moldau.server.handlers.share_states.state_handler import ShareStateHandler
from moldau.wire.apis import ApiKey


class WriteShareGroupState(ShareStateHandler):
    api = ApiKey.WRITE_SHARE_GROUP_STATE
    versions = (0, 1)
    messages = WRITE
