"""DeleteTopics v1–6. Removes topics, by name or (v6) by id. The controller decides."""

from __future__ import annotations

from moldau.base.later import Later
from moldau.runtime.admin import Admin
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


class DeleteTopics:
    api = ApiKey.DELETE_TOPICS
    versions = (1, 6)

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def answer(self, ask: DeleteTopicsRequest, caller: Caller) -> Later[DeleteTopicsResponse]:
        return self._admin.delete_topics(ask)
