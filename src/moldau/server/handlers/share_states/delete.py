"""DeleteShareGroupState v0. Removes the state of a partition for a share group."""

from __future__ import annotations

from moldau.runtime.coordinators.share_apis import DELETE
from moldau.server.handlers.share_states.state_handler import ShareStateHandler
from moldau.wire.apis import ApiKey


class DeleteShareGroupState(ShareStateHandler):
    api = ApiKey.DELETE_SHARE_GROUP_STATE
    versions = (0, 0)
    messages = DELETE
