"""ReadShareGroupStateSummary v0–1. The state without its batches, for the offsets of a group and its lag."""

from __future__ import annotations

from moldau.runtime.coordinators.share_apis import READ_SUMMARY
from moldau.server.handlers.share_states.state_handler import ShareStateHandler
from moldau.wire.apis import ApiKey


class ReadShareGroupStateSummary(ShareStateHandler):
    api = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    versions = (0, 1)
    messages = READ_SUMMARY
