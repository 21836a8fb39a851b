"""InitializeShareGroupState v0. Begins the state of a partition for a share group, or begins it anew."""

from __future__ import annotations

from moldau.runtime.coordinators.share_apis import INITIALIZE
from moldau.server.handlers.share_states.state_handler import ShareStateHandler
from moldau.wire.apis import ApiKey


class InitializeShareGroupState(ShareStateHandler):
    api = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    versions = (0, 0)
    messages = INITIALIZE
